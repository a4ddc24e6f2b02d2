//! The kernel's modules for Foo-over-UDP, loaded from their files where the kernel has them and nobody loaded them.
//!
//! The kernel loads those of tunnels by itself when one is made. Those of Foo-over-UDP it does not: they have no name by
//! which it could ask for them.

use std::fs::File;
use std::path::Path;

use nix::kmod::{ModuleInitFlags, finit_module};
use nix::sys::utsname::uname;

/// What must be there before what comes later in the list.
const MODULES: [&str; 9] = [
    "net/ipv4/udp_tunnel",
    "net/ipv6/ip6_udp_tunnel",
    "net/ipv4/tunnel4",
    "net/ipv4/ip_tunnel",
    "net/ipv4/ipip",
    "net/ipv6/tunnel6",
    "net/ipv6/ip6_tunnel",
    "net/ipv4/fou",
    "net/ipv6/fou6",
];

/// The ends of modules' names, and what the kernel is told of a compressed one (`MODULE_INIT_COMPRESSED_FILE`).
const ENDS: [(&str, u32); 4] = [("ko", 0), ("ko.xz", 4), ("ko.zst", 4), ("ko.gz", 4)];

/// Loads what can be loaded. Whether that was enough, a try tells; it may be there already, or built in, or not allowed.
pub fn load() {
    let Ok(system) = uname() else { return };
    let directory = Path::new("/lib/modules").join(system.release()).join("kernel");
    for module in MODULES {
        for (end, flags) in ENDS {
            if let Ok(file) = File::open(directory.join(format!("{module}.{end}"))) {
                let _ = finit_module(&file, c"", ModuleInitFlags::from_bits_retain(flags));
                break;
            }
        }
    }
}
