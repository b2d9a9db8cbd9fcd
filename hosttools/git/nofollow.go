package git

import "golang.org/x/sys/unix"

// nofollow a symlink, and do not wait for whoever holds the other end of a FIFO.
const nofollow = unix.O_NOFOLLOW | unix.O_NONBLOCK
