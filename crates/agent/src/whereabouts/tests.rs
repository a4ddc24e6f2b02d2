//! Whereabouts' dialect against the embedded API server: every verb, with slices and without, and what may come between.

mod adding;
mod bed;
mod collecting;
mod letting_go;
mod looking;
mod parts;
mod wishing;
