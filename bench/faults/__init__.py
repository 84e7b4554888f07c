"""What transfer-faults injects into transfers, and what it holds them to."""
