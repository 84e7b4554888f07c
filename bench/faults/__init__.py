"""What transfer-faults and transfer-bad-peers do to transfers, and what they hold them to."""
