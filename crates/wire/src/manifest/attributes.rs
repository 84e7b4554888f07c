//! Owners and extended attributes of entries, which are sent with `--archive` only.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::MODE_BITS;

/// The most extended attributes of an entry.
pub const MAX_ATTRIBUTES: usize = 256;
/// The most bytes of all extended attributes of an entry, names and values together.
pub const MAX_ATTRIBUTES_BYTES: usize = 256 * 1024;
/// The longest name of an extended attribute, in bytes: the kernel's limit.
pub const MAX_ATTRIBUTE_NAME: usize = 255;
/// The longest value of an extended attribute, in bytes: the kernel's limit.
pub const MAX_ATTRIBUTE_VALUE: usize = 64 * 1024;
/// The mode of the entry of a file with [`Attributes`], until it has these.
pub const PRIVATE_FILE: u16 = 0o600;
/// The mode of the entry of a folder with [`Attributes`], until it has these.
pub const PRIVATE_FOLDER: u16 = 0o700;
/// The attribute with the access list of a file or folder.
pub const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// The attribute with the capabilities of a program.
pub const CAPABILITY: &[u8] = b"security.capability";

/// The mode, the owner and the extended attributes of a file, folder or link. A further name of a
/// file has none of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// All twelve permission bits; of no meaning for a link.
    pub mode: u16,
    /// The owner, as a number.
    pub uid: u32,
    /// The group, as a number.
    pub gid: u32,
    /// The extended attributes, ascending by name; a link has none.
    pub extended: Vec<Extended>,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extended {
    /// Its name, with the namespace.
    pub name: Vec<u8>,
    /// Its value, of any bytes.
    pub value: Vec<u8>,
}

/// The attributes of the entries of a manifest, by index.
pub type AttributesOf = BTreeMap<usize, Attributes>;

/// Whether an extended attribute of this name is sent and set: those of users, access lists, and
/// capabilities. All others belong to the host: labels of its security policy, and what file
/// systems keep for themselves.
#[must_use]
pub fn is_kept(name: &[u8]) -> bool {
    let of_user = name.strip_prefix(b"user.").is_some_and(|rest| !rest.is_empty());
    let is_known =
        of_user || [ACCESS_LIST, b"system.posix_acl_default", CAPABILITY].contains(&name);
    is_known && name.len() <= MAX_ATTRIBUTE_NAME && !name.contains(&0)
}

impl Extended {
    /// Its bytes, name and value together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.name.len() + self.value.len()
    }

    /// Whether it has neither name nor value: such a one passes no check.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks the attribute on its own.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if !is_kept(&self.name) {
            return Err("name of an attribute");
        }
        if self.value.len() > MAX_ATTRIBUTE_VALUE {
            return Err("length of an attribute");
        }
        Ok(())
    }
}

impl Attributes {
    /// The extended attribute of this name.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.extended.binary_search_by(|extended| extended.name[..].cmp(name));
        found.ok().map(|index| &self.extended[index].value[..])
    }

    /// Checks mode and owner. The number -1 is no owner: to the kernel it means that the owner
    /// stays.
    pub(super) fn check_owner(&self) -> Result<(), &'static str> {
        if self.mode > MODE_BITS {
            return Err("mode");
        }
        if self.uid == u32::MAX || self.gid == u32::MAX {
            return Err("owner");
        }
        Ok(())
    }

    /// Checks the attributes on their own.
    ///
    /// # Errors
    /// The name of the invalid field.
    pub fn check(&self) -> Result<(), &'static str> {
        self.check_owner()?;
        self.extended.iter().try_for_each(Extended::check)?;
        if !self.extended.is_sorted_by(|a, b| a.name < b.name) {
            return Err("order of attributes");
        }
        if self.extended.len() > MAX_ATTRIBUTES
            || self.extended.iter().map(Extended::len).sum::<usize>() > MAX_ATTRIBUTES_BYTES
        {
            return Err("number of attributes");
        }
        Ok(())
    }

    /// Adds an attribute that a peer told, behind all others.
    pub(super) fn add(&mut self, more: Extended) -> Result<(), &'static str> {
        more.check()?;
        if self.extended.last().is_some_and(|last| last.name >= more.name) {
            return Err("order of attributes");
        }
        let bytes: usize = self.extended.iter().map(Extended::len).sum();
        if self.extended.len() == MAX_ATTRIBUTES || bytes + more.len() > MAX_ATTRIBUTES_BYTES {
            return Err("number of attributes");
        }
        self.extended.push(more);
        Ok(())
    }
}
