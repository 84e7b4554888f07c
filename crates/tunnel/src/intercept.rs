//! Rules with which the kernel hands connections over (TPROXY).
