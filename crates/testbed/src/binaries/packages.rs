//! Installs Debian packages, and leaves no service running.
//!
//! Debian's `etcd-server`, `bird2` and `prometheus` start a service when they are installed, unless
//! `/usr/sbin/policy-rc.d` forbids it. If there is none, a temporary one exists while apt-get runs; an
//! existing one is never touched. The script that does this is not killed with the test process: half an
//! installation would be worse than a late one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::unistd::geteuid;

use super::cache::{failed, lock};
use super::program::Source;
use super::progress::Progress;
use super::search::Search;
use super::{BinariesError, Program};

/// Installs the packages given as arguments. `$0` is the policy file.
const INSTALL: &str = r#"
set -u
policy=$0
mark='forbids the start of services while the Tenure test bed installs packages'
if [ -f "$policy" ] && grep -qs "$mark" "$policy"; then rm -f "$policy"; fi
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  trap 'exit 1' HUP INT TERM
  printf '#!/bin/sh\n# %s\nexit 101\n' "$mark" >"$policy" && chmod 755 "$policy" || exit 1
fi
install() { apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"; }
install "$@" || { apt-get update -q -o DPkg::Lock::Timeout=300 && install "$@"; } || exit 1
# Nor is one to start at the next boot.
for package in "$@"; do
  case $package in
    etcd-server) service=etcd.service ;;
    bird2) service=bird.service ;;
    prometheus) service=prometheus.service ;;
    *) continue ;;
  esac
  if command -v systemctl >/dev/null; then systemctl disable "$service" || true; fi
done
"#;

/// Installs what `programs` need; the error says in one sentence what to install.
pub(super) fn install(programs: &[Program]) -> Result<(), BinariesError> {
    let packages: Vec<&str> = programs
        .iter()
        .filter_map(|program| match program.source() {
            Source::Debian(package) => Some(package),
            Source::Go(_) => None,
        })
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let has_apt = Search::from_environment().command("apt-get").is_some();
    if let Some(reason) = obstacle(has_apt, geteuid().is_root()) {
        let programs: Vec<&str> = programs.iter().map(|program| program.name()).collect();
        return Err(BinariesError::Install {
            programs: programs.join(" and "),
            packages: packages.join(" "),
            reason,
        });
    }
    let _lock = lock(&std::env::temp_dir().join("tenure-testbed-apt.lock"), "Debian packages")?;
    let progress = Progress::begin(format!("installing {} by apt-get", packages.join(" ")), "about 10 s");
    run(Path::new("/usr/sbin/policy-rc.d"), &packages)?;
    progress.done();
    Ok(())
}

fn obstacle(has_apt: bool, is_root: bool) -> Option<&'static str> {
    match (has_apt, is_root) {
        (false, _) => Some("there is no apt-get here to install them with"),
        (true, false) => Some("only root may install packages"),
        (true, true) => None,
    }
}

fn run(policy: &Path, packages: &[&str]) -> Result<(), BinariesError> {
    let shell = PathBuf::from("/bin/sh");
    let output = Command::new(&shell)
        .args(["-c", INSTALL])
        .arg(policy)
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("RUNLEVEL", "1")
        .stdin(Stdio::null())
        .output()
        .map_err(failed("running", &shell))?;
    succeeded(&output, &packages.join(" "))
}

/// Downloads and unpacks `packages` into a directory with a script, which has them as `$0` and then these arguments.
pub(super) fn unpack(
    script: &str,
    packages: &str,
    arguments: &[&Path],
    directory: &Path,
) -> Result<(), BinariesError> {
    let shell = Path::new("/bin/sh");
    let output = Command::new(shell)
        .args(["-c", script, packages])
        .args(arguments)
        .current_dir(directory)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(failed("running", shell))?;
    succeeded(&output, packages)
}

fn succeeded(output: &Output, packages: &str) -> Result<(), BinariesError> {
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let log = last_lines(&String::from_utf8_lossy(&text));
    Err(BinariesError::Apt { packages: packages.to_owned(), log })
}

/// The end of a log, in one line.
pub(super) fn last_lines(log: &str) -> String {
    let end: Vec<&str> = log.lines().rev().take(5).collect();
    end.into_iter().rev().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    /// Runs the script with an apt-get that notes the policy it sees and then ends with `code`.
    fn installed_with(policy: &Path, code: u8) -> (bool, String) {
        let directory = tempfile::tempdir().unwrap();
        let apt = directory.path().join("apt-get");
        let seen = directory.path().join("seen");
        let script = format!("#!/bin/sh\ncat {} >>{}\nexit {code}\n", policy.display(), seen.display());
        fs::write(&apt, script).unwrap();
        fs::set_permissions(&apt, fs::Permissions::from_mode(0o755)).unwrap();
        let status = Command::new("/bin/sh")
            .args(["-c", INSTALL])
            .arg(policy)
            .arg("some-package")
            .env("PATH", format!("{}:/usr/bin:/bin", directory.path().display()))
            .status()
            .unwrap();
        (status.success(), fs::read_to_string(seen).unwrap())
    }

    #[test]
    fn services_are_forbidden_while_apt_get_runs_and_no_longer_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let policy = directory.path().join("policy-rc.d");
        for code in [0, 1] {
            let (success, seen) = installed_with(&policy, code);
            assert_eq!(success, code == 0);
            assert!(seen.contains("exit 101"), "{seen}");
            assert!(!policy.exists());
        }
    }

    #[test]
    fn a_policy_that_is_there_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let policy = directory.path().join("policy-rc.d");
        fs::write(&policy, "#!/bin/sh\nexit 104\n").unwrap();
        let (_, seen) = installed_with(&policy, 0);
        assert_eq!(seen, "#!/bin/sh\nexit 104\n");
        assert_eq!(fs::read_to_string(&policy).unwrap(), "#!/bin/sh\nexit 104\n");
    }

    #[test]
    fn a_policy_that_we_left_behind_is_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let policy = directory.path().join("policy-rc.d");
        fs::write(&policy, "# forbids the start of services while the Tenure test bed installs packages\n")
            .unwrap();
        installed_with(&policy, 0);
        assert!(!policy.exists());
    }

    #[test]
    fn without_root_or_apt_one_sentence_says_what_to_install() {
        assert_eq!(obstacle(true, true), None);
        let error = BinariesError::Install {
            programs: "etcd and runc".to_owned(),
            packages: "etcd-server runc".to_owned(),
            reason: obstacle(true, false).unwrap(),
        };
        assert_eq!(
            error.to_string(),
            "etcd and runc not found, and only root may install packages: \
             install etcd-server runc (apt-get install etcd-server runc), or put etcd and runc on PATH"
        );
    }
}
