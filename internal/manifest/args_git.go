package manifest

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
	"unicode"
)

// GitStatusArgs of git.status.
type GitStatusArgs struct {
	// Path of the top directory of a working tree.
	Path string `json:"path"`
}

// GitCommitArgs of git.commit: exactly the named files are committed, as they lie in the working tree, on the branch that is checked
// out; what else was staged stays staged.
type GitCommitArgs struct {
	Path string `json:"path"`
	// Files relative to Path; one that is gone is committed as deleted.
	Files   []string `json:"files"`
	Message string   `json:"message"`
	// Author as Name <mail>; the operator's own when empty.
	Author string `json:"author,omitempty"`
}

// GitCloneArgs of git.clone.
type GitCloneArgs struct {
	URL string `json:"url"`
	// Path that is made; it must not exist.
	Path string `json:"path"`
	// Branch to check out; the remote's own choice when empty.
	Branch string `json:"branch,omitempty"`
	// Depth of the history; all of it when 0.
	Depth          int `json:"depth,omitempty"`
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
}

// GitPushArgs of git.push: a branch to the branch of the same name, forwards only.
type GitPushArgs struct {
	Path   string `json:"path"`
	URL    string `json:"url"`
	Branch string `json:"branch"`
	// Commit that the remote's branch becomes; what the local branch points to when empty.
	Commit         string `json:"commit,omitempty"`
	TimeoutSeconds int    `json:"timeoutSeconds,omitempty"`
}

const (
	// MaxFiles of one commit.
	MaxFiles = 500
	// MaxMessage of a commit in bytes.
	MaxMessage = 16 << 10
	// maxDepth of a clone.
	maxDepth = 1_000_000
)

func (a GitStatusArgs) check() error { return checkPath(a.Path) }

func (a GitCommitArgs) check() error {
	if len(a.Files) == 0 || len(a.Files) > MaxFiles {
		return fmt.Errorf("%d files: want 1 to %d", len(a.Files), MaxFiles)
	}
	for _, f := range a.Files {
		if err := checkFile(f); err != nil {
			return err
		}
	}
	if strings.TrimSpace(a.Message) == "" || len(a.Message) > MaxMessage || strings.ContainsRune(a.Message, 0) {
		return fmt.Errorf("message: want 1 to %d bytes without NUL", MaxMessage)
	}
	if a.Author != "" && !author.MatchString(a.Author) {
		return fmt.Errorf("author %q: want Name <mail@host>", a.Author)
	}
	return checkPath(a.Path)
}

func (a GitCloneArgs) check() error {
	if a.Depth < 0 || a.Depth > maxDepth {
		return fmt.Errorf("depth %d: want 1 to %d, or none", a.Depth, maxDepth)
	}
	if a.Branch != "" {
		if err := checkBranch(a.Branch); err != nil {
			return err
		}
	}
	return errors.Join(checkRemote(a.URL), checkPath(a.Path), checkTimeout(a.TimeoutSeconds))
}

func (a GitPushArgs) check() error {
	if a.Commit != "" && !objectID.MatchString(a.Commit) {
		return fmt.Errorf("commit %q: want the whole ID in lower-case hexadecimal", a.Commit)
	}
	return errors.Join(checkRemote(a.URL), checkBranch(a.Branch), checkPath(a.Path), checkTimeout(a.TimeoutSeconds))
}

var (
	author   = lazy(`^[^<>\x00-\x1f\x7f]{1,128} <[A-Za-z0-9][A-Za-z0-9._+-]{0,63}@[A-Za-z0-9][A-Za-z0-9.-]{0,190}>$`)
	objectID = lazy(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	branch   = lazy(`^[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}$`)
	host     = lazy(`^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$|^\[[0-9A-Fa-f:.]{2,45}\]$`)
	port     = lazy(`^[1-9][0-9]{0,4}$`)
	login    = lazy(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)
	place    = lazy(`^[A-Za-z0-9._~/+-]{1,512}$`)
	scp      = lazy(`^([^@/:]+)@([^@/:]+):(.+)$`)
)

// checkFile of a working tree. .git is nobody's to commit, in any spelling that some file system takes for it.
func checkFile(f string) error {
	if f == "" || len(f) > MaxPath || path.IsAbs(f) || path.Clean(f) != f || f == "." || f == ".." || strings.HasPrefix(f, "../") || strings.ContainsFunc(f, unicode.IsControl) {
		return fmt.Errorf("file %q must be relative to path and clean (no .., no //, no trailing /)", f)
	}
	for _, element := range strings.Split(f, "/") {
		if strings.EqualFold(element, ".git") {
			return fmt.Errorf("file %q belongs to git itself", f)
		}
	}
	return nil
}

// checkBranch by the rules of git-check-ref-format, and narrower.
func checkBranch(b string) error {
	bad := !branch.MatchString(b) || strings.Contains(b, "..") || strings.HasSuffix(b, ".")
	for _, element := range strings.Split(b, "/") {
		bad = bad || element == "" || strings.HasPrefix(element, ".") || strings.HasSuffix(element, ".lock")
	}
	if bad || b == "HEAD" || strings.HasPrefix(b, "refs/") {
		return fmt.Errorf("branch %q is not a plain name of a branch", b)
	}
	return nil
}

// checkRemote wants a URL that names one place, in one way, that git speaks with itself: no helper of git's (ext::, fd::), nothing
// that could be an option, no password that a plan would show to everybody, and no path that climbs out of what a rule allows.
func checkRemote(u string) error {
	if RemoteScheme(u) == "" {
		return fmt.Errorf("url %q: want https://host/path, ssh://user@host/path, user@host:path, http://host/path or file:///path, without a password, .. or //", u)
	}
	return nil
}

// RemoteScheme of a URL that checkRemote accepts: https, http, ssh or file; empty for any other.
func RemoteScheme(u string) string {
	if m := scp.FindStringSubmatch(u); m != nil {
		if login.MatchString(m[1]) && host.MatchString(m[2]) && cleanPlace(strings.TrimPrefix(m[3], "/")) {
			return "ssh"
		}
		return ""
	}
	p, err := url.Parse(u)
	if err != nil || p.String() != u || p.RawQuery != "" || p.Fragment != "" || p.ForceQuery || p.Opaque != "" || p.RawPath != "" {
		return ""
	}
	if !strings.HasPrefix(p.Path, "/") || !cleanPlace(p.Path[1:]) {
		return ""
	}
	if p.Scheme == "file" {
		if p.Host != "" || p.User != nil {
			return ""
		}
		return p.Scheme
	}
	if p.Scheme != "https" && p.Scheme != "http" && p.Scheme != "ssh" {
		return ""
	}
	if p.User != nil {
		if _, has := p.User.Password(); has || !login.MatchString(p.User.Username()) {
			return ""
		}
	}
	name := p.Host
	if i := strings.LastIndex(name, ":"); i >= 0 && !strings.HasSuffix(name, "]") {
		if !port.MatchString(name[i+1:]) {
			return ""
		}
		name = name[:i]
	}
	if !host.MatchString(name) {
		return ""
	}
	return p.Scheme
}

// cleanPlace at a remote: relative to its root, and each element a name of its own. ~ is left to ssh, which knows homes.
func cleanPlace(p string) bool {
	if !place.MatchString(p) || strings.HasPrefix(p, "-") {
		return false
	}
	for _, element := range strings.Split(strings.TrimSuffix(p, "/"), "/") {
		if element == "" || element == "." || element == ".." {
			return false
		}
	}
	return true
}
