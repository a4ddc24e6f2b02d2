//! `tenured`: the library's main function.

fn main() -> anyhow::Result<()> {
    tenured::main()
}
