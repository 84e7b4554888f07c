//! What every reliable transport needs once: round-trip times, loss detection, rate reduction, pacing.
