#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lazaret_tests::fuzz::names(data));
