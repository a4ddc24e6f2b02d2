//! Claims of machines that are deleted.

use super::*;

#[test]
fn garbage_after_deletion_of_a_running_machine_in_the_background() {
    let mut world = World::running(ONE);
    world.settle();
    world.machine = None;
    world.instance = world.instance.map(being_deleted);
    world.settle();
    assert_eq!(world.names(), ["vm.net1"], "its pod still runs");
    world.instance = world.instance.map(without_pods);
    world.settle();
    assert!(world.names().is_empty());
}

#[test]
fn garbage_after_deletion_of_a_running_machine_in_the_foreground() {
    let mut world = World::running(ONE);
    world.settle();
    world.delete_foreground();
    world.settle();
    assert_eq!(world.names(), ["vm.net1"], "its instance is still there");
    world.instance = None;
    world.settle();
    assert!(world.names().is_empty());
}

#[test]
fn garbage_after_deletion_of_a_stopped_machine_in_the_background_and_in_the_foreground() {
    for foreground in [false, true] {
        let mut world = World { machine: Some(machine_of("vm-1", ONE)), ..World::default() };
        world.settle();
        if foreground {
            world.delete_foreground();
        } else {
            world.machine = None;
        }
        world.settle();
        assert!(world.names().is_empty(), "foreground: {foreground}");
    }
}

#[test]
fn garbage_after_deletion_of_a_bare_instance() {
    let mut world = World { instance: Some(instance_of(None, ONE)), ..World::default() };
    world.settle();
    world.instance = world.instance.map(being_deleted);
    world.settle();
    assert_eq!(world.names(), ["vm.net1"], "its pod still runs");
    world.instance = None;
    world.settle();
    assert!(world.names().is_empty());
}
