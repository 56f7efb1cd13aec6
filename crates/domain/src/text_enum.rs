//! Enums that are texts outside: one declaration gives the variants, their spelling, and the way back.
//!
//! The API, the database and the metrics all use the same spelling, and a new variant appears in all of them by
//! being declared.

macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// Every variant, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The text used in the API, the database and metrics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::text_enum::UnknownText;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err($crate::text_enum::UnknownText(stringify!($name))),
                }
            }
        }
    };
}
pub(crate) use text_enum;

/// A text that names no variant of the enum whose name it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a known {0}")]
pub struct UnknownText(pub &'static str);
