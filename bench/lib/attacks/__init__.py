"""Attacks on programs that listen or dial, for bench/bars/attacks.

Each module has `ATTACKS`: a function for each attack by its name. The function gets the account of
the bars, an empty folder, and whether this is a trial; it starts the victim as users do, attacks
it, and adds the bars.
"""

from . import answers, far_side, gateway, relay, relay_datagrams, striped, tunnel

SUBJECTS = [far_side, striped, answers, tunnel, relay, relay_datagrams, gateway]
