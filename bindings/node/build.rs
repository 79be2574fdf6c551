//! Lets the addon find Node's symbols in the process that loads it.

fn main() {
    napi_build::setup();
}
