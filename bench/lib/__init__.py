"""Parts that all measurements share.

A measurement is a script under bench/bars/. It imports this package:

    import sys, pathlib
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import lib
"""

from .bars import Bars, TOLD, arguments, in_parallel, median, need_fuzzer, say
from .emulation import (
    TCP_SHARE,
    UDP_SHARE,
    Failed,
    NETWORKS,
    ROOT,
    anabranch,
    carrier_options,
    default_bytes,
    emulate,
    example,
    fraction,
    ideal,
    network,
    our_fraction,
)
from . import feeds
from .feeds import Feeds, served
from .figures import overlay_study, quantile, samples
from .files import memory_available, scratch, source_file, write_random
from .hosts import Ends, Pairs, Process, Routed, need_root
from .mesh import Mesh, link
from .transfers import CLOCK, PEERS, by_mptcp, by_us, controllers, fetched_by_us, timeout_for
