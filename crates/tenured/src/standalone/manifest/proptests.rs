//! Whatever is in a file, it is pools or a mistake that names the file.

use proptest::prelude::*;

use super::*;

const GOOD: &str = "apiVersion: coil.cybozu.com/v2\nkind: AddressPool\nmetadata: {name: x, labels: {a: b}}\nspec: {blockSizeBits: 4, subnets: [{ipv4: 10.2.0.0/16}], exclude: ['10.2.0.1'], cooling: 30s}\n";

fn judge(text: &str) -> Result<(), TestCaseError> {
    match read("p.yaml", text) {
        Ok(pools) => prop_assert!(!pools.is_empty() && pools.iter().all(|pool| !pool.name.is_empty())),
        Err(mistake) => prop_assert!(mistake.to_string().starts_with("pool file p.yaml"), "{mistake}"),
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_text_is_pools_or_a_mistake(text in any::<String>()) {
        judge(&text)?;
    }

    #[test]
    fn a_good_file_that_was_damaged_is_pools_or_a_mistake(
        at in 0..GOOD.len(), cut in 0..20_usize, put in "[-\\[\\]{}:,&*!|>'\"%@`#~a-z0-9 \n\t]{0,8}",
    ) {
        // The text is ASCII, so that any place is between two characters.
        let end = (at + cut).min(GOOD.len());
        judge(&format!("{}{put}{}", &GOOD[..at], &GOOD[end..]))?;
    }
}
