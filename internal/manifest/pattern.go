package manifest

import (
	"regexp"
	"sync"
)

// pattern that is compiled when it is first asked for. A bound of some hundred characters is compiled into as many steps, and a program
// that never sees a URL or a container's name has no use for them.
type pattern func() *regexp.Regexp

func lazy(expression string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

func (p pattern) MatchString(s string) bool { return p().MatchString(s) }

func (p pattern) FindStringSubmatch(s string) []string { return p().FindStringSubmatch(s) }
