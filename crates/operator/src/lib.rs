//! Admin verbs, each with its row in operator_log.
