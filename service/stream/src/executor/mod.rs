//! Operators: batch transformers that the job loop calls.
