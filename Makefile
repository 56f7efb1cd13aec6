# make demo   the whole platform with private servers under .local/ (ARGS="--http-addr 127.0.0.1:9000 --json")
# make test   every test, with servers of its own; what CI runs
# make compose-test   the platform as `docker compose up` runs it, wherever Docker is
# make lint   formatting, clippy, documentation, dependencies
export SQLX_OFFLINE = true

.PHONY: demo test compose-test lint

demo:
	@scripts/install.sh demo
	@exec cargo run --release --locked --package app --bin aivideo -- demo $(ARGS)

test:
	@exec scripts/test.sh

compose-test:
	@exec scripts/compose-test.sh

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --document-private-items
	@if command -v cargo-deny >/dev/null; then cargo deny check bans licenses sources; \
	else echo "cargo-deny is not installed: cargo install --locked cargo-deny"; fi
