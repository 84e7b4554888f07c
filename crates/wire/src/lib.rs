//! Formats: parse and emit, nothing else.
