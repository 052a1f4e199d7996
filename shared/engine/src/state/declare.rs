//! The macros that declare states, records and views.

/// Declares a struct that is the state of a graph, and gives every field a key under the field's name.
///
/// ```
/// dormouse_engine::state! {
///     /// An order.
///     #[derive(Clone, Debug, Default)]
///     pub struct Order {
///         /// How much.
///         pub amount: u32,
///         /// What became of it.
///         pub result: String,
///     }
/// }
/// assert_eq!(Order::amount.name(), "amount");
/// assert_eq!(Order::default().amount, 0);
/// ```
///
/// The state of a graph needs `Clone` and `Default`; its default is the state before anything is known. Fields have in
/// JSON the names that they have in Rust, so serde attributes that change them are refused:
///
/// ```compile_fail
/// dormouse_engine::state! {
///     #[derive(Clone, Default, serde::Serialize)]
///     struct Order {
///         #[serde(rename = "sum")]
///         amount: u32,
///     }
/// }
/// ```
#[macro_export]
macro_rules! state {
    (
        $(#[$($attribute:tt)*])*
        $visibility:vis struct $name:ident {
            $($(#[$($field_attribute:tt)*])* $field_visibility:vis $field:ident: $type:ty),* $(,)?
        }
    ) => {
        $crate::record! {
            $(#[$($attribute)*])*
            $visibility struct $name {
                $($(#[$($field_attribute)*])* $field_visibility $field: $type,)*
            }
        }

        impl $crate::GraphState for $name {
            fn read(state: &$crate::State) -> ::core::result::Result<Self, ::std::string::String> {
                let _ = state;
                ::core::result::Result::Ok(Self { $($field: $crate::__private::read_field(state, Self::$field)?,)* })
            }

            fn read_again(
                &mut self,
                field: &str,
                state: &$crate::State,
            ) -> ::core::result::Result<(), ::std::string::String> {
                let _ = (field, state);
                $(
                    if field == Self::$field.name() {
                        self.$field = $crate::__private::read_field(state, Self::$field)?;
                    }
                )*
                ::core::result::Result::Ok(())
            }

            fn read_more(
                &mut self,
                field: &str,
                state: &$crate::State,
            ) -> ::core::result::Result<(), ::std::string::String> {
                #[allow(unused_imports, reason = "a state of lists alone does without")]
                use $crate::__private::ReadMore as _;
                let _ = (field, state);
                $(
                    if field == Self::$field.name() {
                        Self::$field.read_more(&mut self.$field, state)?;
                    }
                )*
                ::core::result::Result::Ok(())
            }
        }
    };
}

/// Declares a struct and gives every field a key under the field's name, as [`state!`](crate::state) does: what an
/// answer may hold where it is no state of a graph, for example one vote of several. It may have serde attributes that
/// leave the names of fields alone, such as `#[serde(default)]`.
#[macro_export]
macro_rules! record {
    (
        $(#[$($attribute:tt)*])*
        $visibility:vis struct $name:ident {
            $($(#[$($field_attribute:tt)*])* $field_visibility:vis $field:ident: $type:ty),* $(,)?
        }
    ) => {
        $($crate::__keeps_names! { $($attribute)* })*
        $($($crate::__keeps_names! { $($field_attribute)* })*)*

        $(#[$($attribute)*])*
        $visibility struct $name {
            $($(#[$($field_attribute)*])* $field_visibility $field: $type,)*
        }

        #[allow(non_upper_case_globals, dead_code, reason = "a key has the name of its field, and not every one is used")]
        impl $name {
            $(
                #[doc = ::core::concat!("Key of the field `", ::core::stringify!($field), "`.")]
                $field_visibility const $field: $crate::FieldKey<Self, $type> =
                    $crate::FieldKey::new(::core::stringify!($field));
            )*
        }

        impl $crate::Record for $name {
            type State = Self;

            fn write(&self) -> ::std::vec::Vec<(&'static str, $crate::__private::Written)> {
                ::std::vec![$((Self::$field.name(), $crate::__private::to_value(&self.$field)),)*]
            }
        }
    };
}

/// Declares a struct with some of the fields of a state. A node that takes it reads only these, and none of the others.
///
/// ```
/// dormouse_engine::state! {
///     #[derive(Clone, Debug, Default)]
///     struct Report {
///         title: String,
///         pages: Vec<String>,
///     }
/// }
/// dormouse_engine::view! {
///     #[derive(Clone, Debug)]
///     struct Heading of Report {
///         title: String,
///     }
/// }
/// use dormouse_engine::{END, Graph, Update};
///
/// let graph = Graph::<Report>::new("report")
///     .entry("shout")
///     .node("shout", async |heading: Heading| Ok(Update::change(&heading, |heading| heading.title += "!")))
///     .edge("shout", END)
///     .compile()?;
/// # Ok::<(), dormouse_engine::EngineError>(())
/// ```
///
/// A field that the state does not have, or that has another type there, does not compile:
///
/// ```compile_fail,E0599
/// # dormouse_engine::state! {
/// #     #[derive(Clone, Debug, Default)]
/// #     struct Report {
/// #         title: String,
/// #     }
/// # }
/// dormouse_engine::view! {
///     struct Heading of Report {
///         titel: String,
///     }
/// }
/// ```
#[macro_export]
macro_rules! view {
    (
        $(#[$($attribute:tt)*])*
        $visibility:vis struct $name:ident of $state:ty {
            $($(#[$($field_attribute:tt)*])* $field_visibility:vis $field:ident: $type:ty),* $(,)?
        }
    ) => {
        $($crate::__keeps_names! { $($attribute)* })*
        $($($crate::__keeps_names! { $($field_attribute)* })*)*

        $(#[$($attribute)*])*
        $visibility struct $name {
            $($(#[$($field_attribute)*])* $field_visibility $field: $type,)*
        }

        impl $crate::View<$state> for $name {
            fn view(state: &$crate::State) -> ::core::result::Result<Self, ::std::string::String> {
                ::core::result::Result::Ok(Self {
                    $($field: $crate::__private::read_field::<$state, $type>(state, <$state>::$field)?,)*
                })
            }
        }

        impl $crate::Record for $name {
            type State = $state;

            fn write(&self) -> ::std::vec::Vec<(&'static str, $crate::__private::Written)> {
                ::std::vec![$((<$state>::$field.name(), $crate::__private::to_value(&self.$field)),)*]
            }
        }
    };
}

/// Refuses serde attributes that would give a field another name than its key.
#[doc(hidden)]
#[macro_export]
macro_rules! __keeps_names {
    (serde(default $($rest:tt)*)) => {};
    (serde(crate $($rest:tt)*)) => {};
    (serde(deny_unknown_fields)) => {};
    (serde $($rest:tt)*) => {
        ::core::compile_error!(
            "fields have in JSON the names that they have in Rust: leave this serde attribute out, or give it to the type of \
             the field"
        );
    };
    ($($other:tt)*) => {};
}
