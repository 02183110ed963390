//! Reads the arguments of `server_open` as the settings of a server. `headway.server` checks them
//! and has the defaults; here no option may be missing.

use headway_python::convert::FromPython;
use headway_python::exception::Exception;
use headway_python::object::{Object, PyResult, Raised};
use headway_server::{
    AccessLog, ApplicationGroups, Believed, FORWARDING_FIELDS, GroupSettings, Handover, HttpLimits,
    Listener, LogForm, Mount, Networks, PoolSettings, Preamble, ProcessLimits, Timeouts,
};
use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::tls;

/// The reason why a server could not be opened.
pub enum OpenError {
    /// A Python exception is set.
    Raised,
    System(io::Error),
}

impl From<Raised> for OpenError {
    fn from(Raised: Raised) -> Self {
        Self::Raised
    }
}

/// Reads the settings of the pool. Takes over the descriptors in `listeners`, and those of the
/// access log and of the handing over if `options` name them.
///
/// # Safety
/// The caller gives these descriptors away. `listeners` is a sequence, `options` a dict.
pub unsafe fn pool_settings(
    listeners: &Object,
    options: &Object,
) -> Result<PoolSettings, OpenError> {
    let options = Options(options);
    let number = |name| options.number(name);
    let mut opened = Vec::new();
    for item in listeners.items()? {
        // SAFETY: the descriptor is ours, as the caller promises.
        let fd = unsafe { OwnedFd::from_raw_fd(item.to_i64()? as c_int) };
        opened.push(Listener::from_fd(fd).map_err(OpenError::System)?);
    }
    // SAFETY: the descriptors are ours, as the caller promises.
    let handover = unsafe { handover(&options, &mut opened)? };
    let form = match number(c"log_form")? {
        1 => Some(LogForm::Common),
        2 => Some(LogForm::Json),
        3 => Some(LogForm::Combined),
        _ => None,
    };
    let access_log = match form {
        Some(form) => {
            // SAFETY: with a form there is a log, whose descriptor is ours, as the caller promises.
            let file = unsafe { OwnedFd::from_raw_fd(number(c"log_fd")? as c_int) };
            Some(AccessLog { form, file })
        }
        None => None,
    };
    Ok(PoolSettings {
        listeners: opened,
        shared_listeners: number(c"shared_listeners")? != 0,
        handover,
        access_log,
        parallel: number(c"parallel")? != 0,
        timeouts: Timeouts {
            keep_alive_ns: number(c"keep_alive_timeout_ns")? as u64,
            head_ns: number(c"head_timeout_ns")? as u64,
            body_ns: number(c"body_timeout_ns")? as u64,
            write_ns: number(c"write_timeout_ns")? as u64,
        },
        max_connections: number(c"max_connections")? as usize,
        preamble: preamble(&options)?,
        limits: HttpLimits {
            max_target_bytes: number(c"max_target_bytes")? as usize,
            max_head_bytes: number(c"max_head_bytes")? as usize,
            max_fields: number(c"max_fields")? as usize,
            max_body_bytes: number(c"max_body_bytes")? as u64,
            normalizes_path: number(c"normalizes_path")? != 0,
        },
        reported: number(c"reported")? != 0,
        process_limits: ProcessLimits {
            maximum_requests: number(c"maximum_requests")? as u64,
            inactivity_ns: number(c"inactivity_timeout_ns")? as u64,
            request_ns: number(c"request_timeout_ns")? as u64,
            interrupt_ns: number(c"interrupt_timeout_ns")? as u64,
            deadlock_ns: number(c"deadlock_timeout_ns")? as u64,
            queue_ns: number(c"queue_timeout_ns")? as u64,
            orphan_ns: number(c"orphan_timeout_ns")? as u64,
            control_fd: number(c"control_fd")? as c_int,
            slow_request_ns: number(c"slow_request_ns")? as u64,
            user_agents: number(c"user_agents")? != 0,
        },
    })
}

/// Reads how connections are handed over, if they are, and adds the queue of those that come.
///
/// # Safety
/// The caller gives the descriptors away that `options` name.
unsafe fn handover(
    options: &Options,
    listeners: &mut Vec<Listener>,
) -> Result<Option<Handover>, OpenError> {
    let paths = options.strings(c"background_paths")?;
    if paths.is_empty() {
        return Ok(None);
    }
    // SAFETY: the descriptors are ours, as the caller promises.
    let descriptor = |name| -> PyResult<OwnedFd> {
        Ok(unsafe { OwnedFd::from_raw_fd(options.number(name)? as c_int) })
    };
    listeners.push(Listener::Handover(descriptor(c"handed_over_fd")?));
    Ok(Some(Handover {
        paths: paths.into_iter().map(String::into_bytes).collect(),
        is_background: options.number(c"is_background")? != 0,
        to_others: descriptor(c"hand_over_fd")?,
    }))
}

/// Reads the mounts and groups. `mounts` is a sequence of (path, index of a group); `groups` is a
/// non-empty sequence of (interpreters, maximum_requests, switch_interval_ns, 0 for none).
pub fn application_groups(mounts: &Object, groups: &Object) -> PyResult<ApplicationGroups> {
    let mut read_mounts = Vec::new();
    for mount in mounts.items()? {
        let parts = mount.items()?;
        let [path, group] = &parts[..] else { return Err(malformed(mounts)) };
        let path = path.as_text()?.as_bytes().to_vec();
        read_mounts.push(Mount::new(path, group.to_i64()? as usize));
    }
    let mut read_groups = Vec::new();
    for group in groups.items()? {
        let parts = group.items()?;
        let [interpreters, maximum_requests, switch_interval_ns] = &parts[..] else {
            return Err(malformed(groups));
        };
        read_groups.push(GroupSettings {
            interpreters: interpreters.to_i64()?.max(1) as usize,
            maximum_requests: maximum_requests.to_i64()? as u64,
            switch_interval_ns: Some(switch_interval_ns.to_i64()? as u64).filter(|ns| *ns > 0),
        });
    }
    if read_groups.is_empty() || read_mounts.iter().any(|mount| mount.group >= read_groups.len()) {
        let message = "a mount must lead to a group";
        return Err(Exception::ValueError.raise(mounts.py(), message));
    }
    Ok(ApplicationGroups::new(read_mounts, read_groups))
}

fn malformed(found: &Object) -> Raised {
    Exception::ValueError.raise(found.py(), "mounts are pairs, groups are triples")
}

fn preamble(options: &Options) -> PyResult<Preamble> {
    let refuse = |message: &str| Exception::ValueError.raise(options.0.py(), message);
    let networks = |name: &CStr| {
        Networks::parse(&options.strings(name)?).map_err(|text| {
            let name = name.to_string_lossy();
            refuse(&format!("{name}: {text:?} must be a network such as 10.0.0.0/8, or unix"))
        })
    };
    let tls = options.value(c"tls")?;
    Ok(Preamble {
        tls: if tls.is_none() { None } else { Some(tls::config_in(&tls)?) },
        proxy_protocol_from: networks(c"proxy_protocol_from")?,
        trusted_proxies: networks(c"trusted_proxies")?,
        believed: Believed::parse(&options.strings(c"trusted_proxy_headers")?).map_err(|name| {
            refuse(&format!("trusted_proxy_headers: {name:?} must be one of {FORWARDING_FIELDS:?}"))
        })?,
        ..Preamble::default()
    })
}

/// The dict of options.
struct Options<'a, 'py>(&'a Object<'py>);

impl<'py> Options<'_, 'py> {
    /// Returns the value of an option. Raises KeyError if there is no such name.
    fn value(&self, name: &CStr) -> PyResult<Object<'py>> {
        let py = self.0.py();
        let key = Object::interned(py, name)?;
        self.0.get_item(&key)?.ok_or_else(|| Exception::KeyError.raise(py, &name.to_string_lossy()))
    }

    fn number(&self, name: &CStr) -> PyResult<i64> {
        self.value(name)?.to_i64()
    }

    fn strings(&self, name: &CStr) -> PyResult<Vec<String>> {
        self.value(name)?.items()?.iter().map(String::from_python).collect()
    }
}
