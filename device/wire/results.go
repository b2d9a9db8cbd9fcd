package wire

// Results of the capabilities beside exec and fs.*. A call that Failed may have one too, where what it did is worth telling.

// GitStatusResult of git.status.
type GitStatusResult struct {
	// Branch that is checked out, and the commit it is at; empty when there is none.
	Branch string `json:"branch,omitempty"`
	Commit string `json:"commit,omitempty"`
	// Upstream branch, and how many commits Branch is ahead of it and behind, as far as this machine knows.
	Upstream string `json:"upstream,omitempty"`
	Ahead    int64  `json:"ahead,omitempty"`
	Behind   int64  `json:"behind,omitempty"`
	// Changes against the commit; none when the tree is clean.
	Changes   []GitChange `json:"changes"`
	Truncated bool        `json:"truncated"`
}

// GitChange of a file.
type GitChange struct {
	Path string `json:"path"`
	// Index and Worktree as git writes them: . unchanged, M modified, T another type, A added, D deleted, U unmerged, ? untracked.
	Index    string `json:"index"`
	Worktree string `json:"worktree"`
}

// GitResult of git.commit (what was made), git.clone (what is checked out) and git.push (what the remote's branch is now).
type GitResult struct {
	Commit string `json:"commit,omitempty"`
	Branch string `json:"branch,omitempty"`
}

// Package of a package manager.
type Package struct {
	Name        string `json:"name"`
	Version     string `json:"version,omitempty"`
	Description string `json:"description,omitempty"`
}

// PkgSearchResult of pkg.search.
type PkgSearchResult struct {
	// Manager: apt, dnf or pacman.
	Manager   string    `json:"manager"`
	Packages  []Package `json:"packages"`
	Truncated bool      `json:"truncated"`
}

// PkgInstallResult of pkg.install.
type PkgInstallResult struct {
	Manager string `json:"manager"`
	// Packages that are new or newer; of a call that failed, those that should have been.
	Packages []Package `json:"packages"`
	// Already there, of those that were asked for.
	Already []string `json:"already,omitempty"`
	// Output of the package manager, both streams.
	Output   string `json:"output,omitempty"`
	Encoding string `json:"encoding,omitempty"`
}

// Process of proc.list.
type Process struct {
	PID    int `json:"pid"`
	Parent int `json:"parent"`
	// Start names the process beside its number; proc.kill wants both.
	Start string `json:"start"`
	User  string `json:"user"`
	Name  string `json:"name"`
	// Argv, of processes that the manifest lets the device touch.
	Argv        []string `json:"argv,omitempty"`
	State       string   `json:"state"`
	MemoryBytes int64    `json:"memoryBytes"`
	CPUSeconds  int64    `json:"cpuSeconds"`
}

// ProcListResult of proc.list, sorted by number.
type ProcListResult struct {
	Processes []Process `json:"processes"`
	Truncated bool      `json:"truncated"`
}

// ProcKillResult of proc.kill.
type ProcKillResult struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// Ended tells that the process was gone a moment after the signal.
	Ended bool `json:"ended"`
}

// Container of docker.container.list.
type Container struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Image string `json:"image"`
	// State such as running or exited, and Status in words.
	State  string `json:"state"`
	Status string `json:"status"`
	// Created in RFC 3339, UTC.
	Created string `json:"created"`
}

// ContainerListResult of docker.container.list.
type ContainerListResult struct {
	Containers []Container `json:"containers"`
	Truncated  bool        `json:"truncated"`
}

// ContainerLogsResult of docker.container.logs.
type ContainerLogsResult struct {
	Stdout      string `json:"stdout"`
	Stderr      string `json:"stderr"`
	StdoutBytes int64  `json:"stdoutBytes"`
	StderrBytes int64  `json:"stderrBytes"`
	Encoding    string `json:"encoding"`
}

// ContainerExecResult of docker.container.exec.
type ContainerExecResult struct {
	// Container's ID.
	Container string `json:"container"`
	ExecResult
}

// CaptureResult of display.capture.
type CaptureResult struct {
	// Image is a PNG in base64.
	Image string `json:"image"`
	// Width and Height of the image, which is smaller than the screen where the screen would not fit.
	Width        int `json:"width"`
	Height       int `json:"height"`
	ScreenWidth  int `json:"screenWidth"`
	ScreenHeight int `json:"screenHeight"`
}

// ClipboardReadResult of clipboard.read.
type ClipboardReadResult struct {
	Content  string `json:"content"`
	Encoding string `json:"encoding"`
	// Size of the whole text in bytes.
	Size      int64 `json:"size"`
	Truncated bool  `json:"truncated"`
}

// ClipboardWriteResult of clipboard.write.
type ClipboardWriteResult struct {
	Bytes int `json:"bytes"`
}
