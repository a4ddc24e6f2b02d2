//! Files in their places, in temporary directories.

use std::os::unix::fs::MetadataExt as _;

use super::*;

#[test]
fn a_file_is_written_once_and_left_alone_while_it_is_right() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bin/tenure");
    assert_eq!(put("a file", &path, b"one", 0o755).unwrap(), Installed::Written);
    let before = fs::metadata(&path).unwrap();
    assert_eq!(before.permissions().mode() & 0o777, 0o755);
    assert_eq!(put("a file", &path, b"one", 0o755).unwrap(), Installed::AlreadyThere);
    assert_eq!(fs::metadata(&path).unwrap().ino(), before.ino(), "not even rewritten with the same bytes");
    assert_eq!(put("a file", &path, b"two", 0o755).unwrap(), Installed::Written);
    assert_eq!(fs::read(&path).unwrap(), b"two");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(put("a file", &path, b"two", 0o755).unwrap(), Installed::Written, "nobody could run it");
    let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_program_that_runs_is_replaced_beside_it() {
    // Writing into it would be refused ("text file busy"), or change what runs.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tenure");
    fs::write(&path, "old").unwrap();
    let running = File::open(&path).unwrap();
    put("a file", &path, b"new", 0o755).unwrap();
    assert_eq!(io::read_to_string(running).unwrap(), "old");
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
}

#[test]
fn what_a_crash_left_half_written_is_in_nobodys_way() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("10-tenure.conflist.new"), "half of").unwrap();
    configuration(directory.path(), of(rpc::SOCKET)).unwrap();
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["10-tenure.conflist"]);
}

#[test]
fn the_configuration_is_one_that_the_plugin_reads_and_names_no_socket() {
    let directory = tempfile::tempdir().unwrap();
    let read = || -> serde_json::Value {
        let text = fs::read(directory.path().join("10-tenure.conflist")).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    configuration(directory.path(), of(rpc::SOCKET)).unwrap();
    assert_eq!(
        read(),
        json!({"cniVersion": "1.0.0", "name": "tenure", "plugins": [{"type": "tenure"}]}),
        "what containerd makes the plugin's configuration of"
    );
    configuration(directory.path(), of("/run/other/tenured.sock")).unwrap();
    assert_eq!(read()["plugins"], json!([{"type": "tenure"}]), "the plugin would not listen to it");
    configuration(directory.path(), Network { persistent_ips: true, ..of(rpc::SOCKET) }).unwrap();
    assert_eq!(read()["plugins"], json!([{"type": "tenure", "allowPersistentIPs": true}]));
}

/// The network of an agent at this socket.
fn of(socket: &str) -> Network<'_> {
    Network { socket: Path::new(socket), persistent_ips: false }
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    let error = configuration(&directory.path().join("file/net.d"), of(rpc::SOCKET)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("the network's configuration") && text.ends_with("file/net.d"), "{text}");
}

#[test]
fn without_a_plugin_beside_the_program_nothing_is_installed() {
    let directory = tempfile::tempdir().unwrap();
    let error = plugin(directory.path(), false, false).unwrap_err();
    assert!(error.to_string().contains("read") && error.to_string().ends_with("/tenure-cni"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// A plugin of ours.
fn ours(version: &str) -> Vec<u8> {
    format!("\u{7f}ELF {version} {} and so on", rpc::SOCKET).into_bytes()
}

#[test]
fn whereabouts_own_program_stays_until_somebody_says_that_it_may_go() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("whereabouts");
    let install = |version: &str, replace| {
        for name in ["tenure", "coil"] {
            assert_eq!(put_plugin(directory.path(), name, &ours(version), true).unwrap(), Installed::Written);
        }
        put_plugin(directory.path(), "whereabouts", &ours(version), replace).unwrap()
    };
    // Nobody's: ours.
    assert_eq!(install("one", false), Installed::Written);
    assert_eq!(install("two", false), Installed::Written, "a version of ours makes room for another");
    assert_eq!(fs::read(&path).unwrap(), ours("two"));
    fs::write(&path, "theirs").unwrap();
    assert_eq!(install("three", false), Installed::LeftToAnother);
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    assert_eq!(install("four", true), Installed::Written);
    assert_eq!(install("five", false), Installed::Written, "it need not be said again");
    assert_eq!(fs::read(&path).unwrap(), ours("five"));
}

#[test]
fn only_what_is_ours_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (plugins, configurations) = (directory.path().join("bin"), directory.path().join("net.d"));
    fs::create_dir_all(&plugins).unwrap();
    fs::create_dir_all(&configurations).unwrap();
    let ours = format!("\x7fELF...{}...", rpc::SOCKET);
    for (name, bytes) in
        [("tenure", &*ours), ("coil", &ours), ("whereabouts", "somebody else's"), ("bridge", "not ours")]
    {
        fs::write(plugins.join(name), bytes).unwrap();
    }
    for name in
        ["10-tenure.conflist", "10-tenure.conflist.new", "05-tenure-gke.conflist", "10-other.conflist"]
    {
        fs::write(configurations.join(name), "{}").unwrap();
    }
    let (removed, left, failed) = remove(&plugins, &configurations);
    assert_eq!((removed.len(), failed.len()), (4, 0), "{removed:?} {failed:?}");
    assert_eq!(left, [plugins.join("whereabouts")]);
    let names = |directory: &Path| {
        let entries = fs::read_dir(directory).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&plugins), ["bridge", "whereabouts"]);
    assert_eq!(names(&configurations), ["10-other.conflist"]);
    let (removed, _, failed) = remove(&plugins, &configurations);
    assert_eq!((removed.len(), failed.len()), (0, 0), "again");
    let (removed, left, failed) = remove(Path::new("/nonexistent"), Path::new("/nonexistent"));
    assert_eq!((removed.len(), left.len(), failed.len()), (0, 0, 0), "there never was any");
}
