#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollkeeper_server::fuzz::target("resp")(bytes));
