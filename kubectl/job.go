package kubectl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/deed"
)

func jobCommand(c *cluster) *cobra.Command {
	cmd := &cobra.Command{Use: "job", Short: "Work with device jobs"}
	cmd.AddCommand(jobSettle(c))
	return cmd
}

func jobSettle(c *cluster) *cobra.Command {
	var as, reason string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "settle NAME --as Succeeded|Failed", Short: "Say how a deed ended that nobody can prove", Args: cobra.ExactArgs(1),
		Long: `Close a job whose outcome is Unknown, after you have looked at its device. It answers the question that holds up the work: settled as Succeeded, the
step counts as done and the plan goes on; settled as Failed, the plan is over and the agent makes another. Nothing is run again by this. Where the
work is over it is kept on the job alone.
It is an Approval by your own credentials, so you must be a Person who may approve for the agent. The job keeps who said so, when, and why.`,
		Example: "  kubectl nisse job settle job-0123456789abcdef -n nisse --as Failed --reason 'the file is not there'",
		RunE: func(cmd *cobra.Command, args []string) error {
			how := v1alpha1.Settlement(as)
			if how != v1alpha1.SettledSucceeded && how != v1alpha1.SettledFailed {
				return fmt.Errorf("--as %q: want Succeeded or Failed", as)
			}
			cl, namespace, err := c.connect()
			if err != nil {
				return err
			}
			return settle(cmd, cl, client.ObjectKey{Namespace: namespace, Name: args[0]}, how, reason, wait)
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "how it ended: Succeeded or Failed")
	cmd.Flags().StringVar(&reason, "reason", "", "how you know; the agent and whoever reads the job later are told")
	cmd.Flags().DurationVar(&wait, "wait", 15*time.Second, "how long to wait until it is settled; 0 does not wait")
	_ = cmd.MarkFlagRequired("as") // it exists
	return cmd
}

func settle(cmd *cobra.Command, cl client.WithWatch, key client.ObjectKey, how v1alpha1.Settlement, reason string, wait time.Duration) error {
	ctx := cmd.Context()
	var j v1alpha1.DeviceJob
	if err := get(ctx, cl, key, &j); err != nil {
		return err
	}
	switch s := j.Status.Settled; {
	case s != nil:
		return fmt.Errorf("job %s: %s", j.Name, told(s))
	case j.Status.State == "":
		return fmt.Errorf("job %s has not ended; the broker still asks %s about it", j.Name, j.Spec.Device)
	case j.Status.State != v1alpha1.JobUnknown:
		return fmt.Errorf("job %s ended as %s, which is proven; only one whose outcome is Unknown can be settled", j.Name, j.Status.State)
	}
	g, err := asking(ctx, cl, &j)
	if err != nil {
		return err
	}
	var me authenticationv1.SelfSubjectReview
	if err := cl.Create(ctx, &me); err != nil {
		return fmt.Errorf("ask the API server who you are: %w", err)
	}
	a := &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, GenerateName: "settle-"}, Spec: v1alpha1.ApprovalSpec{
		Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}, Digest: g.Spec.Digest, Decision: v1alpha1.DecisionApprove, Answer: v1alpha1.AnswerContinue, Settle: how,
		Text: reason, Approver: me.Status.UserInfo.Username, Channel: v1alpha1.Channel{Kind: v1alpha1.ChannelKubernetes},
	}}
	if err := cl.Create(ctx, a); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "approval %s: %s says that job %s %s\n", a.Name, a.Spec.Approver, j.Name, verb(how))
	if wait == 0 {
		return nil
	}
	return settled(cmd, cl, &j, a, wait)
}

// asking is the gate that asks how the job ended. When the work is over none asks any more, and it is told to the one that let the deed run.
func asking(ctx context.Context, cl client.Client, j *v1alpha1.DeviceJob) (*v1alpha1.Gate, error) {
	var item v1alpha1.WorkItem
	err := cl.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: j.Spec.WorkItem.Name}, &item)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err == nil && string(item.UID) == j.Spec.WorkItem.UID && item.Over() {
		g := &v1alpha1.Gate{}
		if err := cl.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: j.Spec.Gate.Name}, g); err != nil {
			return nil, err
		}
		return g, nil
	}
	var all v1alpha1.GateList
	if err := cl.List(ctx, &all, client.InNamespace(j.Namespace), client.MatchingFields{v1alpha1.FieldWorkItem: j.Spec.WorkItem.Name}); err != nil {
		return nil, err
	}
	for i := range all.Items {
		g := &all.Items[i]
		if g.Open() && g.Spec.WorkItem.UID == j.Spec.WorkItem.UID && g.Spec.Halt != nil && g.Spec.Halt.Halt == deed.UnknownHalt(j.Spec.Deed) {
			return g, nil
		}
	}
	return nil, fmt.Errorf("no open gate asks about job %s (yet): look at work item %s, and try again when it waits for an answer", j.Name, j.Spec.WorkItem.Name)
}

// settled waits until the manager has judged the Approval.
func settled(cmd *cobra.Command, cl client.WithWatch, j *v1alpha1.DeviceJob, a *v1alpha1.Approval, wait time.Duration) error {
	return judged(cmd.Context(), cl, a, wait, j, &v1alpha1.DeviceJobList{}, func(o client.Object) (bool, error) {
		now := o.(*v1alpha1.DeviceJob)
		switch s := now.Status.Settled; {
		case s == nil:
			return false, nil
		case s.Approval != a.Name:
			return false, fmt.Errorf("job %s: %s", now.Name, told(s))
		default:
			fmt.Fprintf(cmd.OutOrStdout(), "job %s: %s\n", now.Name, told(s))
			return true, nil
		}
	})
}

func verb(how v1alpha1.Settlement) string {
	if how == v1alpha1.SettledFailed {
		return "failed"
	}
	return "succeeded"
}

func told(s *v1alpha1.JobSettlement) string {
	at := s.At.UTC().Format(time.RFC3339)
	if s.As == "" {
		return fmt.Sprintf("%s answered %s at %s without saying how it ended", s.Person, s.Answer, at)
	}
	return fmt.Sprintf("settled as %s by %s at %s", s.As, s.Person, at)
}
