//! How much to send and where: schedulers and controllers.
