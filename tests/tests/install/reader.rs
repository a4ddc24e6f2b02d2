//! A reader of a page who types its commands on a cluster.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tenure_testbed::binaries::Program;
use tenure_testbed::cluster::{Cluster, images};
use tenure_testbed::wait::PATIENCE;
use tenure_tests::installed::DEPLOY;
use tenure_tests::pages::Script;
use tenure_tests::programs;

/// Runs the commands of a page, which has to show what they print.
pub async fn follow(cluster: &Cluster, page: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    copy(Path::new(DEPLOY), &directory.path().join("deploy"))?;
    // "Change the addresses": to some of which this cluster knows the way.
    let pool = directory.path().join("deploy/examples/pool.yaml");
    let text = fs::read_to_string(&pool)?;
    ensure!(text.contains("10.100.0.0/16"), "{text}");
    let [a, b, ..] = cluster.machine().octets();
    fs::write(&pool, text.replace("10.100.0.0/16", &format!("{a}.{b}.64.0/18")))?;

    let programs = directory.path().join("bin");
    fs::create_dir(&programs)?;
    symlink(programs::tenure(), programs.join("tenure"))?;
    symlink(cluster.control_plane().binaries().path(Program::Kubectl)?, programs.join("kubectl"))?;
    let script = Script::of(page).with("busybox:1.37", images::BUSYBOX);
    let mut shell = tokio::process::Command::new("bash");
    shell
        .args(["-c", &script.text()])
        .current_dir(directory.path())
        .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH")?))
        .env("KUBECONFIG", cluster.control_plane().kubeconfig())
        .env("KUBECACHEDIR", directory.path().join("kubectl-cache"))
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    // Its steps have limits of their own.
    let ended = tokio::time::timeout(PATIENCE * 4, shell.output()).await.context(page.to_owned())??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let complained = text(&ended.stderr);
    if let Err(problem) = script.compare(&text(&ended.stdout)) {
        anyhow::bail!("{problem}\non standard error:\n{complained}");
    }
    ensure!(ended.status.success(), "{page}: {}: {complained}", ended.status);
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            // They stay within the directory.
            symlink(fs::read_link(entry.path())?, target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
