//! `tenure-egress`: the library's main function.

fn main() -> anyhow::Result<()> {
    tenure_egress::main()
}
