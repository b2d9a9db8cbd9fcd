package prompt

import (
	"fmt"

	"nisse.io/nisse/agentruntime/model"
)

// Budgets in tokens.
const (
	// DefaultBudget of a request without its tools: what a server with a context of 32k has room for beside tools and an answer.
	// Nothing tells us the real size yet, so a server that says a request is too long gets a shorter one.
	DefaultBudget = 24_000
	// LeastBudget below which a shorter request makes no sense.
	LeastBudget = 3_000
)

// Tokens is an estimate: four bytes a token, and a few for the message itself. It is too high for English and about right for code
// and other scripts, which is the safe side.
func Tokens(ms ...model.Message) int {
	n := 0
	for _, m := range ms {
		n += 8 + len(m.Text)/4
		for _, c := range m.Calls {
			n += 16 + (len(c.Tool)+len(c.Args))/4
		}
	}
	return n
}

// window keeps the newest blocks that fit, and those that are needed however old: what was asked, and the plan in force. Blocks are
// never cut in two: a call without its result is refused by servers.
func window(blocks []*block, budget int) []model.Message {
	rendered := make([][]model.Message, len(blocks))
	taken := make([]bool, len(blocks))
	for i, b := range blocks {
		rendered[i] = b.render()
		if b.keep || b.plans {
			taken[i] = true
			budget -= Tokens(rendered[i]...)
		}
	}
	for i := len(blocks) - 1; i >= 0; i-- {
		if taken[i] {
			continue
		}
		cost := Tokens(rendered[i]...)
		if cost > budget && i < len(blocks)-1 {
			break
		}
		taken[i] = true
		budget -= cost
	}
	var out []model.Message
	left := 0
	for i := range blocks {
		if !taken[i] {
			left += len(rendered[i])
			continue
		}
		if left > 0 {
			out = append(out, remark(fmt.Sprintf("%d messages are left out here.", left)))
			left = 0
		}
		out = append(out, rendered[i]...)
	}
	return out
}
