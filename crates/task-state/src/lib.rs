//! Owner of generation tasks: the only way a task moves.
