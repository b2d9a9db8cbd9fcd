package shim

import (
	"errors"
	"strconv"
)

// Order to a shim.
type Order struct {
	// Function to run as the user; empty to become a program.
	Function string
	// Parent that the shim must not outlive.
	Parent int
	// User to become; nil to stay who this is.
	User *User
	Argv []string
	Env  []string
	Dir  string
	// CPU seconds; 0 sets no limit.
	CPU uint64
	// Script: its interpreter opens the program's descriptor.
	Script bool
	// Ruleset is there.
	Ruleset bool
}

// User of the machine.
type User struct {
	Name   string
	UID    int
	GID    int
	Groups []int
}

// Fields of an order: a letter each before its value and a zero byte after it, for no argument of a program can hold one. The last one tells that
// nothing is missing.
const (
	fieldFunction = 'f'
	fieldParent   = 'p'
	fieldUser     = 'n'
	fieldUID      = 'u'
	fieldGID      = 'g'
	fieldGroup    = 's'
	fieldArg      = 'a'
	fieldEnv      = 'e'
	fieldDir      = 'd'
	fieldCPU      = 'c'
	fieldScript   = 'i'
	fieldRuleset  = 'r'
	fieldEnd      = '.'
)

var errOrder = errors.New("a zero byte in the order")

// Encode an order. It fails when something in it holds a zero byte, which no program can be given.
func (o Order) Encode() ([]byte, error) {
	var b []byte
	zero := false
	add := func(field byte, values ...string) {
		for _, v := range values {
			for i := range len(v) {
				zero = zero || v[i] == 0
			}
			b = append(append(append(b, field), v...), 0)
		}
	}
	add(fieldFunction, o.Function)
	add(fieldParent, strconv.Itoa(o.Parent))
	if u := o.User; u != nil {
		add(fieldUser, u.Name)
		add(fieldUID, strconv.Itoa(u.UID))
		add(fieldGID, strconv.Itoa(u.GID))
		for _, g := range u.Groups {
			add(fieldGroup, strconv.Itoa(g))
		}
	}
	add(fieldArg, o.Argv...)
	add(fieldEnv, o.Env...)
	add(fieldDir, o.Dir)
	add(fieldCPU, strconv.FormatUint(o.CPU, 10))
	if o.Script {
		add(fieldScript, "")
	}
	if o.Ruleset {
		add(fieldRuleset, "")
	}
	add(fieldEnd, "")
	if zero {
		return nil, errOrder
	}
	return b, nil
}

// decode what Encode wrote; false when that is not the whole of it and nothing else.
func decode(b []byte) (o Order, ok bool) {
	for len(b) > 0 {
		end := 0
		for end < len(b) && b[end] != 0 {
			end++
		}
		if end == 0 || end == len(b) {
			return Order{}, false
		}
		field, value := b[0], string(b[1:end])
		if b = b[end+1:]; field == fieldEnd {
			return o, len(b) == 0 && value == "" && (o.User == nil || o.User.UID >= 0 && o.User.GID >= 0)
		}
		if !o.take(field, value) {
			return Order{}, false
		}
	}
	return Order{}, false
}

// take a field.
func (o *Order) take(field byte, value string) bool {
	var err error
	switch field {
	case fieldFunction:
		o.Function = value
	case fieldParent:
		o.Parent, err = strconv.Atoi(value)
	case fieldUser:
		o.User = &User{Name: value, UID: -1, GID: -1} // to the kernel that is: stay who you are
	case fieldUID, fieldGID, fieldGroup:
		return o.User != nil && o.User.take(field, value)
	case fieldArg:
		o.Argv = append(o.Argv, value)
	case fieldEnv:
		o.Env = append(o.Env, value)
	case fieldDir:
		o.Dir = value
	case fieldCPU:
		o.CPU, err = strconv.ParseUint(value, 10, 64)
	case fieldScript:
		o.Script = true
	case fieldRuleset:
		o.Ruleset = true
	default:
		return false
	}
	return err == nil
}

func (u *User) take(field byte, value string) bool {
	n, err := strconv.Atoi(value)
	switch field {
	case fieldUID:
		u.UID = n
	case fieldGID:
		u.GID = n
	default:
		u.Groups = append(u.Groups, n)
	}
	return err == nil && n >= 0
}

// Report of a shim that could not become the program: the step that failed, and why.
type Report struct {
	Step  string
	Errno int
}

func (r Report) encode() []byte { return []byte(strconv.Itoa(r.Errno) + " " + r.Step) }

// ParseReport that a shim wrote.
func ParseReport(b []byte) (r Report, ok bool) {
	for i, c := range b {
		if c == ' ' {
			n, err := strconv.Atoi(string(b[:i]))
			return Report{Step: string(b[i+1:]), Errno: n}, err == nil
		}
	}
	return Report{}, false
}
