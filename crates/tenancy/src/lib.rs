//! Owner of tenants, users, projects, members, keys, idempotency keys and limits.
