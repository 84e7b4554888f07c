//! Tables, confidence intervals and plots.
