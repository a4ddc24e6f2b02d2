//! The kernel's modules for Foo-over-UDP, loaded from their files if they exist and are not loaded.
//!
//! The kernel loads tunnel modules by itself when a tunnel is created. Those of Foo-over-UDP have no alias by which
//! it could.

use std::fs::File;
use std::path::Path;

use nix::kmod::{ModuleInitFlags, finit_module};
use nix::sys::utsname::uname;

/// In the order of their dependencies.
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

/// The endings of module files, and the kernel's flag for compressed ones (`MODULE_INIT_COMPRESSED_FILE`).
const ENDS: [(&str, u32); 4] = [("ko", 0), ("ko.xz", 4), ("ko.zst", 4), ("ko.gz", 4)];

/// Loads what can be loaded. A test tells whether that was enough; a module may be loaded, built in or not allowed.
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
