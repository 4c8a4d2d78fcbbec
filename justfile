# The commands of a developer. `just` alone lists them; `pip install rust-just` installs it in seconds.

[private]
default:
    @just --list --unsorted

# Start the demo agent and the gateway before it
demo *OPTIONS:
    cargo run --release -- demo {{ OPTIONS }}

# Compile everything without running it
check:
    cargo check --all-targets

# Unit tests and the rules of the architecture, which need no other process
test-fast *FILTER:
    cargo test --lib {{ FILTER }}
    cargo test --test architecture

# Journeys through the binary, by a part of their names
test-gateway *FILTER:
    cargo test --test gateway {{ FILTER }}

# All tests that need nothing but Rust
test:
    cargo test

# Formatting and lints
lint:
    cargo fmt --check
    cargo lint
    cargo lint-fuzz

# Write the generated reference anew: configuration, schema, command line, metrics, errors
reference:
    UPDATE=1 cargo test --test config
    UPDATE=1 cargo test --lib reference
    UPDATE=1 cargo test --test gateway reference

# Build the book to target/book; `just docs serve` shows it
docs *MODE:
    .ci/book {{ MODE }}

# Instructions of a call beside the stored figures
instructions:
    benches/instructions

# Everything that must hold before a change lands
ci:
    .ci/run
