//! Owner of models, routes, prices and provider accounts.
