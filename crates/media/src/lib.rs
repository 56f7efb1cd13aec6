//! Owner of assets: byte streams in, verified objects out.
