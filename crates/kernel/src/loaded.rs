//! Libraries that are looked for at run time: a table of the functions that are used of one.

/// Declares `Library`, which has these functions of a loaded library, each under a name of ours.
macro_rules! library {
    ($($name:ident = $symbol:literal: fn($($arg:ty),*) -> $result:ty;)*) => {
        /// The functions that are used.
        #[derive(Clone, Copy)]
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($arg),*) -> $result,)*
        }

        impl Library {
            fn look_up(handle: *mut c_void) -> Result<Library, &'static str> {
                Ok(Library {
                    $($name: {
                        // SAFETY: the handle is that of a library which stays loaded, the name is terminated.
                        let found = unsafe { libc::dlsym(handle, $symbol.as_ptr()) };
                        if found.is_null() {
                            return Err($symbol.to_str().unwrap_or_default());
                        }
                        // SAFETY: that is this function's type in the header.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $result>(found) }
                    },)*
                })
            }
        }
    };
}

pub(crate) use library;
