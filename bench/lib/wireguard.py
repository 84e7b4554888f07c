"""wireguard-go (bench/peers/wireguard), configured over its socket
(https://www.wireguard.com/xplatform/).
"""

import secrets
import socket
import subprocess

from .emulation import Failed, ROOT

SOURCE = ROOT / "bench" / "peers" / "wireguard"
# The field of Curve25519, and the constant of its ladder (RFC 7748, section 5).
FIELD, A24 = 2**255 - 19, 121_665


def build(folder):
    """Builds the program; returns its path, and its version."""
    program = folder / "wireguard-go"
    module = "golang.zx2c4.com/wireguard"
    subprocess.run(["go", "build", "-o", program, module], cwd=SOURCE, check=True)
    shown = ["go", "list", "-m", "-f", "{{.Version}}", module]
    shown = subprocess.run(shown, cwd=SOURCE, check=True, capture_output=True, text=True)
    return program, shown.stdout.strip()


def new_key():
    """A private key and its public one."""
    private = bytearray(secrets.token_bytes(32))
    private[0] &= 248
    private[31] = private[31] & 127 | 64
    return bytes(private), public_key(private)


def public_key(private):
    """X25519 of a private key and the base point, by the ladder of RFC 7748."""
    scalar = int.from_bytes(private, "little")
    x2, z2, x3, z3, swapped = 1, 0, 9, 1, 0
    for at in reversed(range(255)):
        bit = scalar >> at & 1
        if bit != swapped:
            x2, z2, x3, z3 = x3, z3, x2, z2
        swapped = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a, c * b, a * a, b * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % FIELD, 9 * (da - cb) ** 2 % FIELD
        x2, z2 = aa * bb % FIELD, e * (aa + A24 * e) % FIELD
    if swapped:
        x2, z2 = x3, z3
    return (x2 * pow(z2, FIELD - 2, FIELD) % FIELD).to_bytes(32, "little")


def configure(device, private, port, peer, endpoint, networks):
    """Tells the program of a device its key, its port, and its one peer."""
    lines = [
        "set=1",
        f"private_key={private.hex()}",
        f"listen_port={port}",
        f"public_key={peer.hex()}",
        f"endpoint={endpoint}",
        *(f"allowed_ip={network}" for network in networks),
    ]
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(10)
        stream.connect(f"/var/run/wireguard/{device}.sock")
        stream.sendall(("\n".join(lines) + "\n\n").encode())
        answer = stream.recv(1 << 12).decode()
    if "errno=0" not in answer:
        raise Failed(f"wireguard-go does not take its configuration: {answer}")
