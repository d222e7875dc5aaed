//! Moving a running process: the deputy at home, the guest abroad, and the protocol between them.
//!
//! `docs/engine.md` has the design in one page.

mod area;
pub mod brake;
pub mod channel;
pub mod control;
pub mod cpu;
#[cfg(test)]
mod fuzz;
mod guest;
mod hold;
mod home;
pub mod inspect;
mod layout;
mod link;
pub mod message;
mod restart;
mod seal;
mod squeeze;
mod thread_state;

/// Runs `pando __deputy`: reads a [`control::DeputyOrder`] from standard input, moves the process, stays
/// with it until it is home or ended. Returns the exit code.
pub fn deputy_main() -> i32 {
    pando_kernel::naming::call_this("pando-deputy");
    pando_kernel::heap::keep_large_buffers();
    home::main()
}

/// Runs `pando __guest`: reads a [`control::GuestOrder`] from standard input, descriptor 3 is the connection. Returns the exit
/// code.
pub fn guest_main() -> i32 {
    pando_kernel::naming::call_this("pando-guest");
    pando_kernel::heap::keep_large_buffers();
    guest::main()
}
