"""What makes computing repeatable and comparable: random draws, batch norm chunk by chunk, types, comparison.

random                     a seed for each draw of each cell
steady_draws               draws that are all one number, so that other batches can be compared
batch_norm                 batch statistics chunk by chunk
step_outcome               compares loss, gradients and buffers of two ways to compute a step
whole_and_parts            joins a batch and its parts for such a comparison
precision                  the coarsest type in which a program computes
grad_and_autocast_regions  blocks of no_grad and autocast
flops, backward_history    operations of a pass; what autograd keeps of it
replacing, turn_lock       an attribute replaced for a while; a lock that is handed on
"""
