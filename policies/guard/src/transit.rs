//! Names in transit: what programs call a file before they rename it to a protected name, or a copy that they keep of it.
//!
//! The forms are data (`[[transit]]` of a policy file): a protected name with something before it, after it, or both. A program
//! that names its temporary file without the name it is for (`sed -i`, `.goutputstream-XXXXXX`) has no form.

use crate::fold::fold_pattern;
use crate::pattern::{Case, NameError, Pattern};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A form of names in transit for a protected name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitForm {
    /// The text before the protected name, compared without case.
    pub before: String,
    /// A pattern of what stands after it.
    pub after: String,
    /// Patterns of what is not meant though `after` matches it.
    pub except: Vec<String>,
    /// Who writes such a file, and what becomes of it.
    pub why: String,
}

/// A form with its patterns, compiled once for a session.
#[derive(Clone, Debug)]
pub(crate) struct CompiledForm {
    before: Vec<u8>,
    after: Pattern,
    except: Vec<Pattern>,
}

impl CompiledForm {
    pub(crate) fn new(form: &TransitForm) -> Result<Self, NameError> {
        let parse = |pattern: &String| {
            let parsed = Pattern::parse(&fold_pattern(pattern), Case::Ignored);
            parsed.map_err(|why| NameError {
                pattern: pattern.clone(),
                why,
            })
        };
        let before = fold_pattern(&form.before).into_owned().into_bytes();
        let except = form.except.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self {
            before,
            after: parse(&form.after)?,
            except,
        })
    }

    /// Where in `name`, which is folded, the names stand for which it may be in transit: several where the pattern fits in
    /// several ways.
    pub(crate) fn targets<'n>(&'n self, name: &'n [u8]) -> impl Iterator<Item = Range<usize>> + 'n {
        let (start, rest) = name.split_at(self.before.len().min(name.len()));
        let rest = if start.eq_ignore_ascii_case(&self.before) {
            rest
        } else {
            &[]
        };
        let fits = |after: &[u8]| {
            self.after.matches(after) && !self.except.iter().any(|pattern| pattern.matches(after))
        };
        let ends = (1..=rest.len()).filter(move |end| fits(&rest[*end..]));
        ends.map(|end| start.len()..start.len() + end)
    }
}
