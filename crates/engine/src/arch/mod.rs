//! Instruction sets and the matrix product, behind safe functions.
