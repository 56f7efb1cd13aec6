//! PostgreSQL: the pool, transactions that nobody can abort half-way, the migrator, named-constraint errors.
