//! Images as another tar reads them.

use std::collections::BTreeMap;
use std::process::Command;

use super::*;

/// Unpacks with the machine's own `tar`, so that ours is not judged by itself.
fn unpack(archive: &Path) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let status =
        Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(directory.path()).status().unwrap();
    assert!(status.success());
    directory
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn an_image_is_a_layout_whose_digests_hold_and_whose_layer_has_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    fs::write(&program, vec![7; 1300]).unwrap();
    let image = Image::named("tenure.test/thing:1").program("/opt/thing/bin/thing", &program).unwrap();
    let image = image.link("/bin/thing", "../opt/thing/bin/thing").unwrap().file("/etc/empty", b"").unwrap();
    let image = image.directory("/tmp", 0o1777).unwrap().entrypoint(&["/bin/thing"]).variable("PATH", "/bin");
    let saved = directory.path().join("image.tar");
    let written = image.save(&saved).unwrap();
    assert_eq!(u64::try_from(written.size).unwrap(), fs::metadata(&saved).unwrap().len());

    let layout = unpack(&saved);
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        let path = layout.path().join("blobs").join(digest.replace(':', "/"));
        let bytes = fs::read(&path).unwrap();
        assert_eq!(digest_of(&bytes), digest);
        assert_eq!(descriptor["size"], bytes.len());
        path
    };
    let index = read_json(&layout.path().join("index.json"));
    assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "tenure.test/thing:1");
    assert_eq!(index["manifests"][0]["digest"], written.digest);
    let manifest = read_json(&blob(&index["manifests"][0]));
    let config = read_json(&blob(&manifest["config"]));
    assert_eq!(config["config"], json!({"Entrypoint": ["/bin/thing"], "Env": ["PATH=/bin"]}));
    let layer = &manifest["layers"][0];
    assert_eq!(config["rootfs"]["diff_ids"][0], layer["digest"]);

    let root = unpack(&blob(layer));
    assert_eq!(fs::read(root.path().join("bin/thing")).unwrap(), vec![7; 1300], "through the link");
    assert_eq!(fs::read(root.path().join("etc/empty")).unwrap(), b"");
    let modes: BTreeMap<&str, u32> = ["opt/thing/bin/thing", "etc/empty", "tmp", "opt/thing"]
        .map(|path| {
            use std::os::unix::fs::PermissionsExt as _;
            (path, fs::metadata(root.path().join(path)).unwrap().permissions().mode() & 0o777)
        })
        .into();
    assert_eq!(
        modes,
        [("etc/empty", 0o644), ("opt/thing", 0o755), ("opt/thing/bin/thing", 0o755), ("tmp", 0o777)].into()
    );
}

#[test]
fn the_same_files_make_the_same_image() {
    let image = |bytes| Image::named("a:1").file("/x", bytes).unwrap().layout(&[]).unwrap();
    assert_eq!(image(b"1"), image(b"1"));
    assert_ne!(image(b"1"), image(b"2"));
}

#[test]
fn an_image_for_two_architectures_is_an_index_of_both() {
    let image = |architecture| {
        let image = Image::named("a:1").architecture(architecture).file("/for", architecture.as_bytes());
        image.unwrap().created("1970-01-01T00:00:00Z").label("org.opencontainers.image.version", "1")
    };
    let directory = tempfile::tempdir().unwrap();
    let saved = directory.path().join("image.tar");
    let written = image("amd64").save_with(&[image("arm64")], &saved).unwrap();
    let layout = unpack(&saved);
    let blob = |of: &Value| {
        let digest = of["digest"].as_str().unwrap();
        layout.path().join("blobs").join(digest.replace(':', "/"))
    };
    let named = read_json(&layout.path().join("index.json"))["manifests"].take();
    assert_eq!(named.as_array().unwrap().len(), 1);
    assert_eq!(named[0]["annotations"]["io.containerd.image.name"], "a:1");
    assert_eq!((&named[0]["digest"], &named[0]["mediaType"]), (&json!(written.digest), &json!(INDEX)));
    let index = read_json(&blob(&named[0]));
    for (at, architecture) in ["amd64", "arm64"].into_iter().enumerate() {
        let entry = &index["manifests"][at];
        assert_eq!(entry["platform"], json!({"architecture": architecture, "os": "linux"}));
        let manifest = read_json(&blob(entry));
        let config = read_json(&blob(&manifest["config"]));
        assert_eq!(
            (&config["architecture"], &config["created"], &config["config"]["Labels"]),
            (
                &json!(architecture),
                &json!("1970-01-01T00:00:00Z"),
                &json!({"org.opencontainers.image.version": "1"})
            )
        );
        let root = unpack(&blob(&manifest["layers"][0]));
        assert_eq!(fs::read_to_string(root.path().join("for")).unwrap(), architecture);
    }
}

#[test]
fn an_image_of_programs_takes_static_ones_for_one_architecture() {
    let directory = tempfile::tempdir().unwrap();
    // The beginning of a program, with one segment that is loaded and none for a loader.
    let program = |name: &str, machine: u8, segment: u8| {
        let mut bytes = [b"\x7fELF\x02\x01".as_slice(), &[0; 114]].concat();
        (bytes[18], bytes[32], bytes[54], bytes[56], bytes[64]) = (machine, 64, 56, 1, segment);
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let (one, two, other) = (program("one", 183, 1), program("two", 183, 1), program("other", 62, 1));
    let dynamic = program("dynamic", 183, 3);
    let of = |programs: &[&PathBuf]| {
        let programs: Vec<_> = programs.iter().copied().cloned().collect();
        Image::of_programs("a:1", "one", &programs)
    };
    let image = of(&[&one, &two]).unwrap();
    assert_eq!(image.architecture, "arm64");
    assert_eq!(image.entrypoint, ["/usr/local/bin/one"]);
    let refused = |programs: &[&PathBuf]| of(programs).err().unwrap().to_string();
    assert!(refused(&[&one, &dynamic]).ends_with("it is not a static program, so it would not run there"));
    assert!(refused(&[&one, &other]).contains("other to the image a:1: it is not for the same architecture"));
    assert!(refused(&[&program("mips", 8, 1)]).contains("not for amd64 or arm64"));
}

#[test]
fn a_long_path_is_in_the_image_whole() {
    let path = format!("/{}/{}", "d".repeat(90), "x".repeat(90));
    let mut archive = Archive::new();
    archive.file(&path, 0o644, b"1").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let saved = directory.path().join("layer.tar");
    fs::write(&saved, archive.bytes().unwrap()).unwrap();
    assert_eq!(fs::read(unpack(&saved).path().join(path.trim_start_matches('/'))).unwrap(), b"1");
}

#[test]
fn a_path_that_leads_out_of_the_image_is_refused_by_name() {
    let error = Image::named("a:1").file("/../x", b"").err().unwrap().to_string();
    assert!(error.starts_with("adding \"/../x\" to the image a:1: "), "{error}");
}

#[test]
fn digests_are_those_of_sha256() {
    assert_eq!(digest_of(b""), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}
