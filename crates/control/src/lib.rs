//! Redis: the whole keyspace, one typed function per Lua script.
