//! Node addresses: how long it takes from a policy to addresses on the interfaces of 3, 50 and 200 nodes, beside the plain writes that
//! this takes on the same API server; and one change of an interface beside nmstate's own kernel mode.
//!
//! | module | owns |
//! |---|---|
//! | `crowd` | nodes on one segment, each with the agent's core for node addresses, and the controller |
//! | `apply` | one interface that gets and loses an address |

mod apply;
mod crowd;

use std::path::Path;

use anyhow::Result;

use crate::measure::Effort;
use crate::report::Report;

/// All figures; changes of one interface only where a peer is.
pub(crate) fn measure(effort: Effort, peer: Option<&Path>) -> Result<Vec<Report>> {
    Ok(vec![crowd::measure(effort)?, apply::measure(effort, peer)?])
}
