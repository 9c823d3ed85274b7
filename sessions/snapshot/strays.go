package snapshot

import "context"

// strays removes the stages that no upload is for any more: whoever was to remove them
// died before. Stages are listed before records are read, and a record is there before
// its stage is, so that none is taken for a stray that is not one.
func (r *reaping) strays(ctx context.Context) error {
	if err := r.open(); err != nil {
		return err
	}
	uploads, err := r.repo.Stages(ctx)
	if err != nil {
		return err
	}
	for len(uploads) > 0 {
		n := min(len(uploads), reapPage)
		got, err := r.by.records(ctx, uploads[:n])
		if err != nil {
			return err
		}
		for i, upload := range uploads[:n] {
			if one := got[i]; one.exists() && (one.State == Capturing || one.Stage) {
				continue
			}
			if err := r.failed(ctx, upload, r.repo.RemoveStage(ctx, upload)); err != nil {
				return err
			}
		}
		uploads = uploads[n:]
	}
	return nil
}
