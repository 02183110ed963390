//! The limits of the process's cgroups (cgroups(7)): version 2, and of version 1 the controllers
//! `cpu` and `memory` where they are usually mounted.
//!
//! Each cgroup on the path to the root may have a limit, and the lowest limit is in effect. The
//! cgroup that has the limit counts the throttling. Limits change while a process runs, so they are
//! read each time.

use std::path::{Path, PathBuf};

const MOUNT: &str = "/sys/fs/cgroup";
/// Version 1 writes "no limit" as the largest number of whole pages.
const NO_LIMIT_BYTES: u64 = 1 << 62;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cgroup {
    V2(PathBuf),
    V1 { cpu: PathBuf, memory: PathBuf },
}

/// The directories of the process's cgroup and the cgroups that contain it, the innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups(Vec<Cgroup>);

/// The limits; `None` if there is no limit, or if it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    pub cpu_cores: Option<f64>,
    pub memory_bytes: Option<u64>,
    /// The throttling of the cgroup with the lowest CPU limit.
    pub throttling: Option<Throttling>,
}

/// Counters of throttling since the cgroup was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// The periods in which any thread ran, and those in which the cgroup was throttled.
    pub periods: u64,
    pub throttled_periods: u64,
    pub throttled_ns: u64,
}

impl Throttling {
    pub fn since(self, then: Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(then.periods),
            throttled_periods: self.throttled_periods.saturating_sub(then.throttled_periods),
            throttled_ns: self.throttled_ns.saturating_sub(then.throttled_ns),
        }
    }
}

impl Cgroups {
    pub fn of_this_process() -> Self {
        match std::fs::read_to_string("/proc/self/cgroup") {
            Ok(text) => Self::find(&text, Path::new(MOUNT)),
            Err(_) => Self::default(),
        }
    }

    /// `text` is the content of /proc/PID/cgroup: lines of ID:CONTROLLERS:PATH.
    fn find(text: &str, mount: &Path) -> Self {
        let path_of = |controller: &str| {
            text.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (controllers, path) = (parts.next()?, parts.next()?);
                controllers.split(',').any(|each| each == controller).then_some(path)
            })
        };
        let unified = path_of("");
        if mount.join("cgroup.controllers").exists() {
            let path = unified.unwrap_or("/");
            return Self(ancestors(mount, path).map(Cgroup::V2).collect());
        }
        let of =
            |controller| ancestors(&mount.join(controller), path_of(controller).unwrap_or("/"));
        let (mut cpu, mut memory) = (of("cpu"), of("memory"));
        let mut found = Vec::new();
        loop {
            match (cpu.next(), memory.next()) {
                (None, None) => return Self(found),
                (cpu, memory) => found.push(Cgroup::V1 {
                    cpu: cpu.unwrap_or_default(),
                    memory: memory.unwrap_or_default(),
                }),
            }
        }
    }

    pub fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for cgroup in &self.0 {
            if let Some(bytes) = cgroup.memory_bytes() {
                limits.memory_bytes = Some(limits.memory_bytes.map_or(bytes, |it| it.min(bytes)));
            }
            let Some(cores) = cgroup.cpu_cores() else { continue };
            if limits.cpu_cores.is_none_or(|least| cores < least) {
                limits.cpu_cores = Some(cores);
                limits.throttling = cgroup.throttling();
            }
        }
        limits
    }
}

/// The existing directories of the path, the innermost first. A process in its own namespace or
/// container may see fewer directories than the path names.
fn ancestors(root: &Path, path: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let whole = root.join(path.trim_start_matches('/'));
    let root = root.to_path_buf();
    let all: Vec<PathBuf> = whole
        .ancestors()
        .take_while(|each| each.starts_with(&root))
        .filter(|each| each.is_dir())
        .map(Path::to_path_buf)
        .collect();
    all.into_iter()
}

impl Cgroup {
    fn cpu_cores(&self) -> Option<f64> {
        let (quota, period) = match self {
            Self::V2(path) => {
                let text = read(path, "cpu.max")?;
                let (quota, period) = text.split_once(' ')?;
                (quota.to_owned(), period.to_owned())
            }
            Self::V1 { cpu, .. } => {
                (read(cpu, "cpu.cfs_quota_us")?, read(cpu, "cpu.cfs_period_us")?)
            }
        };
        // "max" and -1 mean no limit, and do not parse.
        let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
        (period > 0).then(|| quota as f64 / period as f64)
    }

    fn memory_bytes(&self) -> Option<u64> {
        let text = match self {
            Self::V2(path) => read(path, "memory.max")?,
            Self::V1 { memory, .. } => read(memory, "memory.limit_in_bytes")?,
        };
        text.parse().ok().filter(|bytes| *bytes < NO_LIMIT_BYTES)
    }

    fn throttling(&self) -> Option<Throttling> {
        let (path, time, ns) = match self {
            Self::V2(path) => (path, "throttled_usec", 1_000),
            Self::V1 { cpu, .. } => (cpu, "throttled_time", 1),
        };
        let text = read(path, "cpu.stat")?;
        let value = |name: &str| {
            let of_line = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
            text.lines().find_map(of_line)
        };
        Some(Throttling {
            periods: value("nr_periods")?,
            throttled_periods: value("nr_throttled")?,
            throttled_ns: value(time)?.saturating_mul(ns),
        })
    }
}

fn read(path: &Path, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path.join(name)).ok()?;
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A directory that is removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn with(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("headway-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_least_limit_on_the_way_to_the_root_counts() {
        let stat = "usage_usec 1\nnr_periods 7\nnr_throttled 3\nthrottled_usec 2500\n";
        let tree = Tree::with(
            "cgroup2",
            &[
                ("cgroup.controllers", "cpu memory\n"),
                ("a/cpu.max", "150000 100000\n"),
                ("a/memory.max", "max\n"),
                ("a/cpu.stat", stat),
                ("a/b/cpu.max", "max 100000\n"),
                ("a/b/memory.max", "1048576\n"),
                ("a/b/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"),
            ],
        );
        let limits = Cgroups::find("1:name=x:/z\n0::/a/b\n", &tree.0).limits();
        assert_eq!(limits.cpu_cores, Some(1.5));
        assert_eq!(limits.memory_bytes, Some(1 << 20));
        let throttling = Throttling { periods: 7, throttled_periods: 3, throttled_ns: 2_500_000 };
        assert_eq!(limits.throttling, Some(throttling));
        let reported = Throttling { periods: 5, throttled_periods: 3, throttled_ns: 500_000 };
        let since = throttling.since(reported);
        assert_eq!((since.periods, since.throttled_periods), (2, 0));
        assert_eq!(since.throttled_ns, 2_000_000);
        assert_eq!(Cgroups::find("0::/a\n", &tree.0).limits().memory_bytes, None);
    }

    #[test]
    fn a_path_that_is_not_there_leaves_what_is() {
        let tree = Tree::with(
            "cgroup2-ns",
            &[("cgroup.controllers", ""), ("cpu.max", "50000 100000\n"), ("memory.max", "max\n")],
        );
        let limits = Cgroups::find("0::/docker/0123\n", &tree.0).limits();
        assert_eq!((limits.cpu_cores, limits.memory_bytes), (Some(0.5), None));
        assert_eq!(limits.throttling, None, "there is no cpu.stat");
    }

    #[test]
    fn version_1_has_a_tree_for_each_controller() {
        let tree = Tree::with(
            "cgroup1",
            &[
                ("cpu/x/cpu.cfs_quota_us", "200000\n"),
                ("cpu/x/cpu.cfs_period_us", "100000\n"),
                ("cpu/x/cpu.stat", "nr_periods 4\nnr_throttled 1\nthrottled_time 99\n"),
                ("cpu/cpu.cfs_quota_us", "-1\n"),
                ("cpu/cpu.cfs_period_us", "100000\n"),
                ("memory/y/z/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/memory.limit_in_bytes", "4096\n"),
            ],
        );
        let text = "3:memory:/y/z\n2:cpu,cpuacct:/x\n0::/ignored\n";
        let limits = Cgroups::find(text, &tree.0).limits();
        assert_eq!((limits.cpu_cores, limits.memory_bytes), (Some(2.0), Some(4096)));
        assert_eq!(limits.throttling.unwrap().throttled_ns, 99);
    }
}
