//! The real helm, with the chart as it is in the repository, in a package, or changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tenure_testbed::binaries::{Binaries, Program};

use crate::installed::DEPLOY;

/// helm, with directories of its own for what it keeps.
pub struct Helm {
    program: PathBuf,
    kubectl: PathBuf,
    kubeconfig: Option<PathBuf>,
    home: TempDir,
}

impl Helm {
    /// One for the cluster of this kubeconfig, or for none.
    pub async fn new(kubeconfig: Option<&Path>) -> Result<Self> {
        let found =
            tokio::task::spawn_blocking(|| Binaries::locate([Program::Helm, Program::Kubectl])).await??;
        Ok(Self {
            program: found.path(Program::Helm)?.to_owned(),
            kubectl: found.path(Program::Kubectl)?.to_owned(),
            kubeconfig: kubeconfig.map(Path::to_owned),
            home: tempfile::tempdir()?,
        })
    }

    /// The chart's directory.
    pub fn chart() -> String {
        format!("{DEPLOY}/helm")
    }

    /// Runs it with these arguments; returns its output, or an error with its message.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        run(&self.program, arguments, self.kubeconfig.as_deref(), self.home.path()).await
    }

    /// The objects that the chart makes with these arguments, hooks included.
    pub async fn template(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let chart = Self::chart();
        let all = [&["template", "tenure", &chart, "--kube-version=1.35"], arguments].concat();
        objects(&self.run(&all).await?)
    }

    /// The objects of a kustomization.
    pub async fn kustomize(&self, directory: &Path) -> Result<Vec<Value>> {
        let directory = directory.to_str().context("a path")?;
        objects(&run(&self.kubectl, &["kustomize", directory], None, self.home.path()).await?)
    }

    /// The chart as people get it: a file with nothing outside.
    pub async fn package(&self) -> Result<PathBuf> {
        let home = self.home.path().to_str().context("a path")?;
        self.run(&["package", &Self::chart(), "--destination", home]).await?;
        let made = fs::read_dir(home)?.filter_map(Result::ok).map(|entry| entry.path());
        made.into_iter().find(|path| path.extension().is_some_and(|it| it == "tgz")).context("a package")
    }

    /// A later version of a packaged chart: a copy in which `change` has edited the file of this path.
    pub fn later(&self, package: &Path, path: &str, change: impl Fn(&str) -> String) -> Result<String> {
        let unpacked = self.home.path().join("later");
        fs::create_dir_all(&unpacked)?;
        let tar = Command::new("tar").arg("-xzf").arg(package).arg("-C").arg(&unpacked).status()?;
        ensure!(tar.success(), "tar: {tar}");
        let chart = unpacked.join("tenure");
        let file = chart.join(path);
        let before = fs::read_to_string(&file)?;
        let after = change(&before);
        ensure!(after != before, "{path} did not change");
        fs::write(&file, after)?;
        Ok(chart.to_str().context("a path")?.to_owned())
    }
}

async fn run(program: &Path, arguments: &[&str], kubeconfig: Option<&Path>, home: &Path) -> Result<String> {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).kill_on_drop(true).env_remove("KUBECONFIG");
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "KUBECACHEDIR", "HOME"] {
        command.env(variable, home.join("home"));
    }
    if let Some(kubeconfig) = kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    let output = command.output().await.with_context(|| format!("starting {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} {}: {said}", program.display(), arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

/// The objects of a text with many documents.
pub fn objects(text: &str) -> Result<Vec<Value>> {
    let documents = serde_saphyr::from_multiple::<Value>(text)?;
    Ok(documents.into_iter().filter(|object| !object.is_null()).map(plain_numbers).collect())
}

/// YAML's 64.0 and 64 are the same.
fn plain_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "only of whole numbers that it can hold")]
            Some(whole) if number.is_f64() && whole.fract() == 0.0 && whole.abs() < 9e15 => {
                Value::from(whole as i64)
            }
            _ => Value::Number(number),
        },
        Value::Array(all) => all.into_iter().map(plain_numbers).collect(),
        Value::Object(all) => all.into_iter().map(|(key, value)| (key, plain_numbers(value))).collect(),
        other => other,
    }
}
