//! Finds the slots of the global offset table through which a loaded object calls given symbols.
//!
//! Reads the object's dynamic section in memory, like the dynamic linker (System V ABI, chapter 5;
//! symbol versions: LSB, "Symbol Versioning"). Runs at install only.

use std::ffi::{CStr, c_int, c_void};

const DT_VERSYM: i64 = 0x6fff_fff0;
const DT_VERNEED: i64 = 0x6fff_fffe;
const DT_VERNEEDNUM: i64 = 0x6fff_ffff;
#[cfg(target_arch = "x86_64")]
const SLOT_RELOCATIONS: [u32; 2] = [6, 7]; // R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
#[cfg(target_arch = "aarch64")]
const SLOT_RELOCATIONS: [u32; 2] = [1025, 1026]; // R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT

/// A loaded object: an executable or a shared library.
pub struct Object {
    base: usize,
    dynamic: *const Dynamic,
    /// Address ranges of its segments.
    segments: Vec<std::ops::Range<usize>>,
    /// The range that is read-only after relocation, if there is one (RELRO).
    pub read_only: Option<std::ops::Range<usize>>,
}

/// One slot of an object's global offset table.
#[derive(Clone, Debug)]
pub struct FoundSlot {
    pub address: usize,
    /// The version that the object requires, such as `GLIBC_2.3.2`.
    pub version: Option<&'static CStr>,
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

#[repr(C)]
struct Rela {
    offset: u64,
    info: u64,
    _addend: i64,
}

#[repr(C)]
struct Sym {
    name: u32,
    _info: u8,
    _other: u8,
    _section: u16,
    _value: u64,
    _size: u64,
}

#[repr(C)]
struct Verneed {
    _version: u16,
    count: u16,
    _file: u32,
    aux: u32,
    next: u32,
}

#[repr(C)]
struct Vernaux {
    _hash: u32,
    _flags: u16,
    other: u16,
    name: u32,
    next: u32,
}

/// The tables of a dynamic section that are used here; 0 where absent.
#[derive(Default)]
struct Tables {
    strings: usize,
    symbols: usize,
    versions: usize,
    needed_versions: usize,
    needed_versions_count: usize,
    /// (address, bytes) of DT_RELA and DT_JMPREL.
    relocations: [(usize, usize); 2],
}

impl Object {
    /// The loaded object that contains `address`; `None` if there is none with a dynamic section.
    pub fn containing(address: *const c_void) -> Option<Self> {
        let mut search = Search { address: address as usize, found: None };
        // SAFETY: the callback gets the `Search` that lives until the call returns.
        unsafe { libc::dl_iterate_phdr(Some(visit_object), (&raw mut search).cast()) };
        search.found
    }

    /// The loaded objects whose path `is_wanted` accepts.
    pub fn named(is_wanted: fn(&CStr) -> bool) -> Vec<Self> {
        let mut search = NamedSearch { is_wanted, found: Vec::new() };
        // SAFETY: the callback gets the `NamedSearch` that lives until the call returns.
        unsafe { libc::dl_iterate_phdr(Some(visit_named), (&raw mut search).cast()) };
        search.found
    }

    pub fn contains(&self, address: usize) -> bool {
        self.segments.iter().any(|segment| segment.contains(&address))
    }

    /// The slots through which this object calls or refers to `symbol`.
    pub fn slots_of(&self, symbol: &[u8]) -> Vec<FoundSlot> {
        let tables = self.tables();
        if tables.strings == 0 || tables.symbols == 0 {
            return Vec::new();
        }
        let mut slots = Vec::new();
        for (table, bytes) in tables.relocations {
            let count = bytes / size_of::<Rela>();
            for index in 0..count {
                // SAFETY: according to the dynamic section, the table has `count` entries.
                let relocation = unsafe { &*(table as *const Rela).add(index) };
                if !SLOT_RELOCATIONS.contains(&(relocation.info as u32)) {
                    continue;
                }
                let symbol_index = (relocation.info >> 32) as usize;
                // SAFETY: relocations name symbols of this object's table.
                let entry = unsafe { &*(tables.symbols as *const Sym).add(symbol_index) };
                if self.string(&tables, entry.name).to_bytes() == symbol {
                    slots.push(FoundSlot {
                        address: self.base + relocation.offset as usize,
                        version: self.version(&tables, symbol_index),
                    });
                }
            }
        }
        slots
    }

    fn string(&self, tables: &Tables, offset: u32) -> &'static CStr {
        // SAFETY: string offsets of a loaded object's tables point at C strings in its string
        // table; the interpreter's object is never unloaded.
        unsafe { CStr::from_ptr((tables.strings as *const libc::c_char).add(offset as usize)) }
    }

    fn version(&self, tables: &Tables, symbol_index: usize) -> Option<&'static CStr> {
        if tables.versions == 0 || tables.needed_versions == 0 {
            return None;
        }
        // SAFETY: DT_VERSYM has an entry for every symbol. The highest bit means "hidden".
        let wanted = unsafe { *(tables.versions as *const u16).add(symbol_index) } & 0x7fff;
        let mut needed = tables.needed_versions;
        for _ in 0..tables.needed_versions_count {
            // SAFETY: DT_VERNEED is a chain of this many entries, linked by byte offsets.
            let entry = unsafe { &*(needed as *const Verneed) };
            let mut auxiliary = needed + entry.aux as usize;
            for _ in 0..entry.count {
                // SAFETY: each entry has `count` auxiliary entries, linked by byte offsets.
                let version = unsafe { &*(auxiliary as *const Vernaux) };
                if version.other & 0x7fff == wanted {
                    return Some(self.string(tables, version.name));
                }
                auxiliary += version.next as usize;
            }
            needed += entry.next as usize;
        }
        None
    }

    fn tables(&self) -> Tables {
        let mut tables = Tables::default();
        let mut entry = self.dynamic;
        loop {
            // SAFETY: a dynamic section ends with DT_NULL, which ends this loop.
            let Dynamic { tag, value } = unsafe { &*entry };
            let address = self.address(*value);
            match *tag {
                0 => return tables,
                5 => tables.strings = address,          // DT_STRTAB
                6 => tables.symbols = address,          // DT_SYMTAB
                7 => tables.relocations[0].0 = address, // DT_RELA
                8 => tables.relocations[0].1 = *value as usize, // DT_RELASZ
                23 => tables.relocations[1].0 = address, // DT_JMPREL
                2 => tables.relocations[1].1 = *value as usize, // DT_PLTRELSZ
                DT_VERSYM => tables.versions = address,
                DT_VERNEED => tables.needed_versions = address,
                DT_VERNEEDNUM => tables.needed_versions_count = *value as usize,
                _ => {}
            }
            // SAFETY: DT_NULL was not reached.
            entry = unsafe { entry.add(1) };
        }
    }

    /// glibc relocates most pointers of the dynamic section in place, but not all on every
    /// architecture. musl relocates none.
    fn address(&self, value: u64) -> usize {
        let value = value as usize;
        if value < self.base { self.base + value } else { value }
    }
}

/// The part of a RELRO range that the dynamic linker protects: whole pages.
fn whole_pages(range: std::ops::Range<usize>) -> std::ops::Range<usize> {
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    range.start & !(page - 1)..range.end & !(page - 1)
}

struct Search {
    address: usize,
    found: Option<Object>,
}

unsafe extern "C" fn visit_object(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: `containing` passes a Search; the linker passes a valid description.
    let (search, info) = unsafe { (&mut *search.cast::<Search>(), &*info) };
    let object = described(info);
    if !object.contains(search.address) || object.dynamic.is_null() {
        return 0;
    }
    search.found = Some(object);
    1
}

struct NamedSearch {
    is_wanted: fn(&CStr) -> bool,
    found: Vec<Object>,
}

unsafe extern "C" fn visit_named(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: `named` passes a NamedSearch; the linker passes a valid description.
    let (search, info) = unsafe { (&mut *search.cast::<NamedSearch>(), &*info) };
    // SAFETY: the linker's name of the object, a C string or null.
    let is_wanted =
        !info.dlpi_name.is_null() && (search.is_wanted)(unsafe { CStr::from_ptr(info.dlpi_name) });
    if is_wanted {
        let object = described(info);
        search.found.extend((!object.dynamic.is_null()).then_some(object));
    }
    0
}

/// The object that the linker describes.
fn described(info: &libc::dl_phdr_info) -> Object {
    let base = info.dlpi_addr as usize;
    let mut object =
        Object { base, dynamic: std::ptr::null(), segments: Vec::new(), read_only: None };
    for index in 0..info.dlpi_phnum as usize {
        // SAFETY: there are `dlpi_phnum` headers.
        let header = unsafe { &*info.dlpi_phdr.add(index) };
        let start = base + header.p_vaddr as usize;
        let range = start..start + header.p_memsz as usize;
        match header.p_type {
            libc::PT_LOAD => object.segments.push(range),
            libc::PT_DYNAMIC => object.dynamic = start as *const Dynamic,
            libc::PT_GNU_RELRO => object.read_only = Some(whole_pages(range)),
            _ => {}
        }
    }
    object
}
